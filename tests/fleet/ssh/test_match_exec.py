"""Match exec: each host's own time pays for it, and nothing of it is left behind."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.fleet import Visit
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.match_exec import succeeds
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd

TOGETHER = 12


def test_d10_match_exec_of_all_hosts_runs_at_the_same_time(
    tmp_path: Path,
    sshd: Callable[..., Sshd],
    key: KeyPair,
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> None:
    """Each host's command waits until those of all hosts run: one after the other, none ends."""
    node, here = sshd(), tmp_path / "here"
    here.mkdir()
    (tmp_path / "known_hosts").write_text(node.known_hosts)
    wait = f"touch {here}/%n; until test $(ls {here} | wc -l) -ge {TOGETHER}; do sleep 0.1; done"
    config = tmp_path / "config"
    config.write_text(
        f'Match exec "{wait}"\n  HostName {node.address}\n  Port {node.port}\n'
        f"Host *\n  IdentityFile {key.path}\n  User root\n"
    )
    hosts = [Host(name=f"gpu{n}", python=fake["healthy"]) for n in range(TOGETHER)]
    visits = go(hosts, ssh_config=config, known_hosts=tmp_path / "known_hosts", shards=1)
    assert {visit.why for visit in visits.values()} == {""}


def test_d10_a_match_exec_that_hangs_costs_its_own_host_alone(
    tmp_path: Path,
    sshd: Callable[..., Sshd],
    key: KeyPair,
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> None:
    node, started = sshd(), tmp_path / "started"
    (tmp_path / "known_hosts").write_text(node.known_hosts)
    config = tmp_path / "config"
    config.write_text(
        f'Match originalhost hangs exec "sleep 600 & echo $$ $! >{started}; wait"\n'
        f"Host *\n  HostName {node.address}\n  Port {node.port}\n"
        f"  IdentityFile {key.path}\n  User root\n"
    )
    hosts = [Host(name=name, python=fake["healthy"]) for name in ("hangs", "gpu1", "gpu2")]
    known_hosts, deadline = tmp_path / "known_hosts", 9  # a command of Match exec has 10 s
    visits = go(hosts, ssh_config=config, known_hosts=known_hosts, shards=1, deadline=deadline)
    assert list(visits)[-1] == "hangs"  # though it was the first to be begun
    assert visits["hangs"].status is Status.TIMEOUT
    assert visits["hangs"].why == f"timed out after {deadline} s (reading ssh_config)"
    assert {visits[name].why for name in ("gpu1", "gpu2")} == {""}
    gone(started)


PROCESS = "import sys; from nodevet.fleet.ssh.match_exec import succeeds; succeeds(sys.argv[1])"


def test_d10_a_match_exec_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    started = tmp_path / "started"
    command = f"sleep 600 & echo $$ $! >{started}; wait"
    process = subprocess.Popen([sys.executable, "-c", PROCESS, command])
    while not (started.exists() and started.read_text().endswith("\n")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    gone(started)


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("true", True),
        ("exit 255", False),
        ("cat; echo out; echo err >&2; test ! -e /dev/fd/3", True),
        ("kill -9 $$", "Match exec: killed by signal 9: "),
    ],
)
def test_the_exit_code_of_a_match_exec_decides_and_its_output_is_dropped(
    command: str, outcome: bool | str, capfd: pytest.CaptureFixture[str]
) -> None:
    if isinstance(outcome, str):
        with pytest.raises(SshConfigError, match=outcome):
            succeeds(command)
    else:
        assert succeeds(command) is outcome
    assert capfd.readouterr() == ("", "")


def gone(pids: Path) -> None:
    """Wait until none of the processes in this file is there."""
    end = time.monotonic() + 120
    while left := [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < end, left
        time.sleep(0.05)
