"""ssh_config where paramiko's or pyinfra's reading of it goes astray."""

from pathlib import Path

import pytest

from nodevet.fleet.protocol.framing import SshTarget
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.host_config import HostConfig, SshConfig


def resolve(tmp_path: Path, text: str) -> HostConfig:
    config = tmp_path / "config"
    config.write_text(text)
    target = SshTarget(0, "gpu1", None, None, None, None, None, "/", None, False)
    return SshConfig(str(config)).resolve(target)


def test_match_exec_runs_a_command_line_and_stays_silent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = 'Match exec "echo %h && test -d /"\n Port 1\nMatch exec "test -d /no/such"\n User x\n'
    found = resolve(tmp_path, f"{text}Host *\n User y\n")
    assert (found.port, found.user) == (1, "y")
    assert capfd.readouterr() == ("", "")


def test_a_match_exec_that_times_out_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodevet.fleet.ssh.match_exec.SECONDS", 0.1)
    with pytest.raises(SshConfigError, match=r"Match exec: timed out after 0\.1 s: exec sleep 60"):
        resolve(tmp_path, 'Match exec "exec sleep 60"\n  Port 1\n')


@pytest.mark.parametrize("what", ["tagged x", "localnetwork 10.0.0.0/8", "sessiontype exec"])
def test_an_unsupported_match_criterion_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(SshConfigError, match=f"Match {what.partition(' ')[0]} is not supported"):
        resolve(tmp_path, f"Match {what}\n  Port 1\n")


def test_names_of_known_hosts_files_may_be_quoted(tmp_path: Path) -> None:
    found = resolve(tmp_path, 'Host *\n  UserKnownHostsFile "/x/my hosts" /dev/null\n')
    assert found.known_hosts == ("/x/my hosts", "/dev/null")


def test_the_inventory_names_the_known_hosts_file_before_ssh_config(tmp_path: Path) -> None:
    target = SshTarget(0, "gpu1", None, None, None, None, "/x/my hosts", "/", None, False)
    config = tmp_path / "config"
    config.write_text("Host *\n  UserKnownHostsFile /y\n")
    assert SshConfig(str(config)).resolve(target).known_hosts == ("/x/my hosts",)


@pytest.mark.parametrize(
    ("hop", "where"),
    [
        ("jump", ("jump", 22, "me")),
        ("joe@jump:2222", ("jump", 2222, "joe")),
        ("ssh://joe@[::1]:2222", ("::1", 2222, "joe")),
    ],
)
def test_every_form_of_proxy_jump_is_read(
    tmp_path: Path, hop: str, where: tuple[str, int, str]
) -> None:
    found = resolve(tmp_path, f"Host gpu*\n  ProxyJump {hop}\nHost *\n  User me\n")
    assert found.jump is not None
    assert (found.jump.hostname, found.jump.port, found.jump.user) == where
