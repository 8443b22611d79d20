"""Every command that only reads visits hosts by the launcher that nodevet.toml names."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from far_processes import alive, children_of, wait_for

from nodevet_sim.sshd import KeyPair, Sshd

SHARD = Path(sys.executable).with_name("nodevet-shard")
NAME = socket.gethostname()
NODEVET = (sys.executable, "-m", "nodevet")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(sshd: Callable[..., Sshd]) -> Sshd:
    return sshd()


@pytest.fixture
def there(server: Sshd, key: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A launcher, which alone knows how to log in to a host."""
    home = tmp_path / "home" / ".ssh"
    home.mkdir(parents=True)
    (home / "config").write_text(
        f"Host {NAME}\n HostName {server.address}\n Port {server.port}\n User root\n"
        f" IdentityFile {key.path}\n"
    )
    (home / "known_hosts").write_text(server.known_hosts)
    there = tmp_path / "there"
    there.write_text(
        f"#!/bin/sh\necho started >>{tmp_path}/started\nHOME={home.parent} exec {SHARD}\n"
    )
    there.chmod(0o755)
    (tmp_path / "any.yaml").write_text("nodevet: 1\ntitle: any\nexpect: {clock_skew: 3600}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    return str(there)


@pytest.fixture
def run(there: str, tmp_path: Path) -> Run:
    def command(*words: str, by: str = there) -> subprocess.CompletedProcess[str]:
        settings(tmp_path, by)
        return subprocess.run((*NODEVET, *words), cwd=tmp_path, capture_output=True, text=True)

    return command


def settings(folder: Path, launcher: str) -> None:
    (folder / "nodevet.toml").write_text(f"launchers.there = {json.dumps(launcher)}\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("gate", NAME, "-b", "any.yaml", "--wait", "0s", "--settle", "0s"), 0, "All ok: 1 host"),
        (("capture", NAME), 0, "# Captured by nodevet"),
        (("explain", "clock_skew", "--host", NAME), 2, "the node shows no NVIDIA GPU"),
        (("diagnose", NAME, "--duration", "1s"), 3, "libnvidia-ml.so.1 is not installed"),
    ],
    ids=["gate", "capture", "explain", "diagnose"],
)
def test_read_only_commands_go_through_a_launcher(
    run: Run, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = run(*words)
    assert said in done.stdout + done.stderr
    assert done.returncode == code
    assert (tmp_path / "started").read_text() == "started\n"


def test_a_gate_whose_launcher_fails_says_so_and_does_not_pass(run: Run, tmp_path: Path) -> None:
    verdict = tmp_path / "verdict.json"
    words = ("gate", NAME, "-b", "any.yaml", "--wait", "0s", "--verdict", str(verdict))
    done = run(*words, by="/no/such/kubectl exec -i pod --")
    assert done.returncode == 1
    assert "launcher there cannot start a child process" in done.stdout
    assert json.loads(verdict.read_text())["verdict"] == "fail"


def test_ctrl_c_ends_remote_shards(
    there: str,
    server: Sshd,
    fake: dict[str, str],
    tools: dict[str, Callable[..., object]],
    tmp_path: Path,
) -> None:
    hosts = {NAME: {"python": fake["hangs"]}}
    (tmp_path / "fleet.yaml").write_text(json.dumps({"nodevet": 1, "hosts": hosts}))
    settings(tmp_path, there)
    argv = (*NODEVET, "check", "-i", "fleet.yaml", "-b", "any.yaml")
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as check:
        wait_for(server.sessions)
        (launcher,) = children_of(check.pid)
        far = [launcher, *children_of(launcher)]
        check.send_signal(signal.SIGINT)
        said, _ = check.communicate()
    assert check.returncode == 3
    assert "interrupted" in said
    wait_for(lambda: not any(map(alive, far)), 15)
    assert not tools["lingering"]([server], 15)


def test_feed_measures_a_loader_without_a_launcher(run: Run, tmp_path: Path) -> None:
    run("feed", "--measure", "--on", NAME, "--", "true")
    assert not (tmp_path / "started").exists()
