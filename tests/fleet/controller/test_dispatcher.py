"""The child processes: they end when they must, and what they do never loses a host."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from nodevet.evidence.document import decode
from nodevet.evidence.host import HostInfo
from nodevet.fleet import FleetError, Options, Visit, visit
from nodevet.fleet.controller import child, local, shards
from nodevet.model import Host, Status
from nodevet_sim.sshd import Sshd

Tools = dict[str, Callable[..., object]]


@pytest.fixture
def hanging(
    tmp_path: Path, sshd: Callable[..., Sshd], hosts_on: Callable[..., list[Host]]
) -> tuple[list[Host], Path]:
    """Four hosts whose probe never answers, after one that does; their known_hosts."""
    server = sshd()
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(server.known_hosts)
    acts = {"gpu0": "healthy", **{f"gpu{n}": "hangs" for n in range(1, 5)}}
    return hosts_on(server, acts), known_hosts


def test_closing_the_iterator_ends_the_children(
    hanging: tuple[list[Host], Path], tools: Tools
) -> None:
    hosts, known_hosts = hanging
    before = tools["children"]()
    visits = visit(hosts, Options(known_hosts=known_hosts, ssh_config=Path(os.devnull)))
    assert next(visits).host == "gpu0"
    started = time.monotonic()
    visits.close()
    assert time.monotonic() - started < 60
    assert tools["children"]() == before


def die(tools: Tools, before: object, visits: Iterator[Visit], sent: signal.Signals) -> list[Visit]:
    """Wait for the healthy host, send the shard a signal; what becomes of the others."""
    assert next(visits).host == "gpu0"
    for pid in tools["children"]() - before:
        os.kill(pid, sent)
    rest = list(visits)
    assert sorted(one.host for one in rest) == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert tools["children"]() == before
    return rest


def test_a_shard_that_dies_loses_no_host(hanging: tuple[list[Host], Path], tools: Tools) -> None:
    hosts, known_hosts = hanging
    before = tools["children"]()
    visits = visit(hosts, Options(known_hosts=known_hosts, ssh_config=Path(os.devnull)))
    rest = die(tools, before, visits, signal.SIGKILL)
    assert {(one.status, one.why) for one in rest} == {
        (Status.PROBE_FAILED, "the process that visits this host was killed by signal 9")
    }


def test_hosts_of_a_shard_that_died_are_visited_once_more(
    hosts_on: Callable[..., list[Host]], sshd: Callable[..., Sshd], tools: Tools, tmp_path: Path
) -> None:
    """Two shards, of which one is killed: its hosts alone have a second try, each counts once."""
    server = sshd()
    known = tmp_path / "known"
    known.write_text(server.known_hosts)
    acts = {"gpu0": "healthy", **{f"gpu{n}": "late" for n in range(1, 8)}}
    options = Options(known_hosts=known, ssh_config=Path(os.devnull), shards=2, second_try=True)
    before = tools["children"]()
    visits = visit(hosts_on(server, acts), options)
    first = next(visits)
    os.kill(min(tools["children"]() - before), signal.SIGKILL)
    rest = list(visits)
    assert sorted(one.host for one in [first, *rest]) == list(acts)
    assert {one.status for one in rest} == {Status.VETTED}
    again = {one.host: one.first for one in rest if one.first}
    assert set(again.values()) == {"the process that visits this host was killed by signal 9"}
    assert {int(host[-1]) % 2 for host in again} in ({0}, {1})  # dealt out like cards


def test_a_shard_that_stalls_loses_no_host(
    hanging: tuple[list[Host], Path], tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, known_hosts = hanging
    before = tools["children"]()
    options = Options(known_hosts=known_hosts, ssh_config=Path(os.devnull))
    monkeypatch.setattr(child, "STALL", 15 - options.deadline)
    rest = die(tools, before, visit(hosts, options), signal.SIGSTOP)
    assert {one.status for one in rest} == {Status.TIMEOUT}
    assert all("was silent for" in one.why and "was killed" in one.why for one in rest)


def test_a_shard_that_cannot_start_loses_no_host(
    monkeypatch: pytest.MonkeyPatch, go: Callable[..., dict[str, Visit]]
) -> None:
    monkeypatch.setattr(shards, "PROGRAM", "nodevet.fleet.no_such_module")
    one = go([Host(name="gpu1")])["gpu1"]
    assert one.status is Status.PROBE_FAILED
    assert "exited with 1: " in one.why and "No module named" in one.why


def test_a_shard_that_writes_what_is_not_a_frame_is_killed_and_loses_no_host(
    monkeypatch: pytest.MonkeyPatch, go: Callable[..., dict[str, Visit]]
) -> None:
    monkeypatch.setattr(shards, "PROGRAM", "this")  # prints verses
    visits = go([Host(name="gpu1"), Host(name="gpu2")], shards=1)
    assert {one.status for one in visits.values()} == {Status.PROBE_FAILED}
    assert all("wrote malformed output: " in one.why for one in visits.values())


CONTROLLER = """
import sys
import tempfile
from pathlib import Path
import msgspec
from nodevet.fleet import Options, visit
from nodevet.model import Host
hosts = msgspec.json.decode(sys.argv[1], type=list[Host])
options = Options(known_hosts=Path(sys.argv[2]), ssh_config=Path("/dev/null"))
try:
    for one in visit(hosts, options):
        print(one.host, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_within_seconds_and_leaves_no_child(
    hanging: tuple[list[Host], Path],
) -> None:
    hosts, known_hosts = hanging
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, msgspec.json.encode(hosts), known_hosts],
        stdout=subprocess.PIPE,
        text=True,
    )
    with controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == "gpu0\n"
        file = Path(f"/proc/{controller.pid}/task/{controller.pid}/children")
        below = [int(word) for word in file.read_text().split()]
        started = time.monotonic()
        controller.send_signal(signal.SIGINT)
        assert controller.stdout.read() == "interrupted\n"
        assert controller.wait() == 0
    assert time.monotonic() - started < 60
    assert below
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_this_machine_is_probed_without_ssh_and_without_pyinfra(
    go: Callable[..., dict[str, Visit]],
) -> None:
    one = go([Host(name="here", local=True)])["here"]
    assert (one.status, one.why) == (Status.VETTED, "")
    evidence = decode(one.evidence or b"")
    assert evidence[HostInfo].data is not None
    code = (
        "import sys; from nodevet.fleet import *; from nodevet.model import Host\n"
        "list(visit([Host(name='here', local=True)], Options()))\n"
        "sys.exit(any(name in sys.modules for name in ('pyinfra', 'gevent', 'paramiko')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_this_machine_reads_only_the_requested_sections(
    go: Callable[..., dict[str, Visit]],
) -> None:
    one = go([Host(name="here", local=True)], sections=("host", "kernel"))["here"]
    assert set(json.loads(one.evidence or b"")["sections"]) == {"host", "kernel"}


def test_local_probes_that_fail_say_why(
    go: Callable[..., dict[str, Visit]], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(name="here", local=True)
    for serve, status, why in (
        ("import time; time.sleep(90)", Status.TIMEOUT, "timed out after 3 s"),
        ("raise SystemExit('no luck')", Status.PROBE_FAILED, "command on the node.*: no luck"),
        ("print('hello')", Status.PROBE_FAILED, "no evidence in the response"),
        ("print('x' * (3 << 20))", Status.PROBE_FAILED, "more than 2 MiB of output"),
    ):  # fmt: skip
        monkeypatch.setattr(local, "SERVE", serve)
        one = go([host], deadline=3 if status is Status.TIMEOUT else 60, max_output=2 << 20)["here"]
        assert one.status is status
        assert re.fullmatch(why, one.why)


def test_every_local_root_is_vetted(tmp_path: Path, go: Callable[..., dict[str, Visit]]) -> None:
    hosts = [Host(name=f"here{n}", local=True, root=str(tmp_path)) for n in range(4)]
    visits = go(hosts, parallel=2)
    assert {one.status for one in visits.values()} == {Status.VETTED}


def test_without_hosts_nothing_is_visited(go: Callable[..., dict[str, Visit]]) -> None:
    assert go([]) == {}


def test_a_full_disk_is_reported_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("nodevet.fleet.controller.child._anonymous_file", full)
    with pytest.raises(FleetError, match=r"cannot start a child process: No space left on device"):
        list(visit([Host(name="gpu1")], Options()))
