"""Work over real SSH: on loopback what needs no systemd, on one simulated node the rest."""

import base64
import getpass
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest
from msgspec.structs import replace

from nodevet.evidence.document import decode
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.processes import Processes
from nodevet.fleet import Options
from nodevet.fleet.controller import child
from nodevet.fleet.controller import worker as worker_module
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.fleet.protocol import commands
from nodevet.fleet.worker.session import HostSession
from nodevet.model import Host
from nodevet.remote.lock import SILENCE
from nodevet.resource import Resource, RunCommand, State, perform
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit
from nodevet_sim.sshd import KeyPair, Sshd
from simulated_fleet import Boot, SimulatedFleet

NODEVET = [sys.executable, "-m", "nodevet"]
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 2}, cores: 2, load: [{gpus: [1], command: train}]}
"""


def wait_for(condition: Callable[[], object], seconds: float = 120) -> object:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def server(sshd: Callable[..., Sshd]) -> Sshd:
    return sshd()


@pytest.fixture
def host(server: Sshd, key: KeyPair, tmp_path: Path) -> Host:
    known = tmp_path / "known_hosts"
    known.write_text(server.known_hosts)
    return Host(
        name="n1",
        address=server.address,
        port=server.port,
        user=getpass.getuser(),
        key_file=str(key.path),
        known_hosts=str(known),
    )


def options(**given: object) -> Options:
    given = {"ssh_config": Path(os.devnull), "deadline": 30, **given}
    return Options(**given)


@pytest.fixture
def worker(host: Host) -> Iterator[SshExecutor]:
    with SshExecutor([host], options()) as running:
        running.open("n1")
        yield running


def file(path: Path, content: str | None = "x", **rest: int) -> WriteFile:
    return WriteFile(
        path=str(path), content=content, owner=os.geteuid(), group=os.getegid(), **rest
    )


AWKWARD = ["", "no newline", "one\n", "'\"$HOME`id`\\ \t\x01é\n\n", "-n", "x" * (1 << 20)]


@pytest.mark.parametrize("content", AWKWARD, ids=range(len(AWKWARD)))
def test_a_file_is_written_byte_by_byte(worker: SshExecutor, tmp_path: Path, content: str) -> None:
    path = tmp_path / "a 'b\" $c;*"
    done = worker.act("n1", file(path, content, mode=0o4750))
    assert done.ok, done
    assert path.read_bytes() == content.encode() and path.stat().st_mode & 0o7777 == 0o4750
    (seen,) = worker.look("n1", [Resource(kind="file", name=str(path))])
    assert base64.b64decode(seen.value["content"]) == content.encode()
    assert worker.act("n1", file(path, None)).ok and worker.act("n1", file(path, None)).ok
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith((".", "a"))]


def test_a_file_that_cannot_be_written_stays_as_it_was(worker: SshExecutor, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "dir").mkdir()
    for name, why in {
        "link": "is not a regular file",
        "dir": "is not a regular file",
        "no/such": "is not a directory",
    }.items():
        done = worker.act("n1", file(tmp_path / name))
        assert not done.ok and done.code == 1 and why in done.output
    assert not worker.act("n1", file(tmp_path / "link", None)).ok
    assert (tmp_path / "link").is_symlink() and list((tmp_path / "dir").iterdir()) == []
    assert not [entry for entry in tmp_path.iterdir() if ".nodevet." in entry.name]


def test_the_next_write_removes_leftovers_of_a_crash(worker: SshExecutor, tmp_path: Path) -> None:
    (tmp_path / ".f.nodevet.abcdef").write_text("half")
    assert worker.act("n1", file(tmp_path / "f")).ok
    assert {entry.name for entry in tmp_path.iterdir()} == {"f", "known_hosts"}


def test_content_that_is_cut_off_on_its_way_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    (command,) = perform([file(path, "new content\n")])
    done = subprocess.run(
        ["sh", "-c", command.get_raw_value()],
        input=base64.b64encode(b"new con"),
        capture_output=True,
    )
    assert done.returncode == 1 and b"did not arrive whole" in done.stderr
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


WORDS = [("printf", "%s\n", "a b", "$HOME", "`id`", "'", '"', ";", "&&", "x\ny", "-n", "é", "")]


@pytest.mark.parametrize("words", WORDS)
def test_arguments_reach_the_program_unchanged(worker: SshExecutor, words: tuple[str, ...]) -> None:
    done = worker.act("n1", RunCommand(words=words))
    assert done.ok and done.output == "\n".join(words[2:]).rstrip("\n")


def test_a_program_name_is_never_run_as_shell_syntax(worker: SshExecutor) -> None:
    for words in (("eval", "echo pwned"), ("A=1",), ("if",), ("/no/such",)):
        done = worker.act("n1", RunCommand(words=words))
        assert not done.ok and done.code == 127 and "pwned" not in done.output.split(": ")[-1]


@pytest.mark.parametrize(
    "action",
    [
        RunCommand(words=()),
        RunCommand(words=("",)),
        RunCommand(words=("-c", "x")),
        RunCommand(words=("a\0b",)),
        WriteFile(path="relative", content="x"),
        WriteFile(path="/etc/../x", content="x"),
        WriteFile(path="/tmp/a\nb", content="x"),
        WriteFile(path="/tmp/a", content="x", mode=0o100644),
        WriteKernel(path="/etc/passwd", value="x"),
        WriteKernel(path="/sys/../etc/passwd", value="x"),
        WriteKernel(path="/sys/x", value=""),
        WriteKernel(path="/sys/x", value="a\nb"),
        SetUnit(name="--now"),
        SetUnit(name="x.service; reboot"),
        SetUnit(name="a/b.service"),
    ],
)
def test_a_malformed_action_is_refused(
    worker: SshExecutor, action: WriteFile | WriteKernel | RunCommand | SetUnit
) -> None:
    done = worker.act("n1", action)
    assert not done.ok and done.code == 2 and "refuses" in done.output


def test_a_kernel_file_is_never_created_and_its_errno_is_reported(
    worker: SshExecutor, tmp_path: Path
) -> None:
    done = worker.act("n1", WriteKernel(path="/proc/sys/kernel/nodevet_none", value="1"))
    assert not done.ok and "No such file or directory" in done.output
    done = worker.act("n1", WriteKernel(path="/proc/sys/kernel/ostype", value="$(id)"))
    assert not done.ok and ("Permission denied" in done.output or "Read-only" in done.output)


def test_a_command_that_does_not_end_is_ended(worker: SshExecutor, server: Sshd) -> None:
    begun = time.monotonic()
    done = worker.act("n1", RunCommand(words=("sh", "-c", "echo begun; sleep 77")), seconds=10)
    assert not done.ok and done.code == 124 and time.monotonic() - begun < 70
    assert done.output == "begun\ntimed out after 5 s"
    assert worker.act("n1", RunCommand(words=("true",))).ok
    assert not [
        pid for pid in server.sessions() if b"77" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_long_binary_output_is_escaped_and_only_its_end_is_kept(worker: SshExecutor) -> None:
    done = worker.act(
        "n1", RunCommand(words=("sh", "-c", "yes | head -c 9000000; printf '\\33[1m\\377.'"))
    )
    assert done.ok and done.output.endswith("\ny\n\\x1b[1m\\xff.")
    assert len(done.output) < 1 << 15


def test_a_signal_that_ends_a_command_has_a_code(worker: SshExecutor) -> None:
    done = worker.act("n1", RunCommand(words=("sh", "-c", "kill -9 $$")))
    assert not done.ok and done.code == 128 + 9


def test_the_probe_returns_evidence_with_the_requested_sysctls(host: Host) -> None:
    with SshExecutor([host], options(asks={"sysctl": ["kernel.ostype"]})) as worker:
        worker.open("n1")
        document = worker.probe("n1")
    found = decode(document)[HostInfo].data
    assert found is not None
    assert found.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert b"kernel.ostype" in document


def test_a_lost_connection_is_reported_and_stays_lost_until_it_is_opened(
    worker: SshExecutor, server: Sshd, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    failed: list[WorkError] = []

    def act() -> None:
        try:
            worker.act("n1", RunCommand(words=("sh", "-c", f"echo > {begun}; sleep 60")))
        except WorkError as error:
            failed.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    wait_for(begun.exists)
    for pid in server.sessions():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    thread.join(120)
    assert [error.status for error in failed] == ["lost"]
    with pytest.raises(WorkError, match="no session: ") as told:
        worker.probe("n1")
    assert told.value.status == "lost"
    worker.open("n1")
    assert worker.act("n1", RunCommand(words=("true",))).ok


def test_a_call_in_progress_reports_that_nodevet_ended(host: Host, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    failed: list[WorkError] = []

    def act(worker: SshExecutor) -> None:
        try:
            worker.act("n1", RunCommand(words=("sh", "-c", f"echo > {begun}; sleep 60")))
        except WorkError as error:
            failed.append(error)

    with SshExecutor([host], options()) as worker:
        worker.open("n1")
        thread = threading.Thread(target=act, args=(worker,))
        thread.start()
        wait_for(begun.exists)
    thread.join(60)
    assert [error.why for error in failed] == ["nodevet ended before the host answered"]


def test_a_node_that_falls_silent_ends_the_call_at_its_deadline(host: Host, server: Sshd) -> None:
    with SshExecutor([host], options(deadline=10, connect_timeout=8)) as worker:
        worker.open("n1")
        stopped = server.sessions()
        signal_all(stopped, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(WorkError) as told:
                worker.act("n1", RunCommand(words=("true",)))
            assert told.value.status == "timeout" and time.monotonic() - begun < 60
            with pytest.raises(WorkError, match="no session"):
                worker.act("n1", RunCommand(words=("true",)))
        finally:
            signal_all(stopped, signal.SIGCONT)


def signal_all(pids: Iterable[int], number: int) -> None:
    """Signal processes; sshd's that has just ended is as good as signalled."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def test_hosts_run_in_parallel_and_the_commands_of_one_host_one_at_a_time(
    host: Host, tmp_path: Path
) -> None:
    meet = "for i in $(seq 300); do [ -e {1}/{0} ] && exit 0; sleep 0.1; done; exit 9"
    script = "touch {1}/{2}; " + meet
    with SshExecutor([host, replace(host, name="n2")], options()) as worker:
        done: dict[str, bool] = {}

        def act(name: str, other: str) -> None:
            worker.open(name)
            words = ("sh", "-c", script.format(other, tmp_path, name))
            done[name] = worker.act(name, RunCommand(words=words)).ok

        threads = [threading.Thread(target=act, args=pair) for pair in (("n1", "n2"), ("n2", "n1"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert done == {"n1": True, "n2": True}
        alone = ("sh", "-c", f"mkdir {tmp_path}/one && sleep 0.5 && rmdir {tmp_path}/one")

        def one(number: int) -> None:
            done[str(number)] = worker.act("n1", RunCommand(words=alone)).ok

        threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert all(done.values())


def test_unreachable_services_are_reported(host: Host) -> None:
    gone = replace(host, name="gone", port=1)
    tree = Host(name="@local", local=True, root="/srv/tree")
    with SshExecutor([gone, tree], options()) as worker:
        with pytest.raises(WorkError, match="connection refused") as told:
            worker.open("gone")
        assert told.value.status == "unreachable"
        with pytest.raises(WorkError, match="it could not be opened: connection refused"):
            worker.probe("gone")
        with pytest.raises(WorkError, match="/srv/tree is not a machine that can be fixed"):
            worker.open("@local")


def test_no_process_or_session_is_left_when_the_worker_ends(
    host: Host, server: Sshd, tools: dict[str, Callable[..., object]]
) -> None:
    before = tools["children"]()
    with SshExecutor([host], options()) as worker:
        worker.open("n1")
        assert server.sessions()
    assert tools["children"]() <= before
    wait_for(lambda: not server.sessions())
    with pytest.raises(WorkError) as told:
        worker.probe("n1")
    assert told.value.status == "lost"


def child_of(worker: SshExecutor) -> int:
    """The process that keeps the sessions now."""
    return worker._workers[0].pid


def test_a_killed_child_fails_the_calls_that_wait(host: Host) -> None:
    with SshExecutor([host], options()) as worker:
        worker.open("n1")
        failed: list[WorkError] = []

        def act() -> None:
            try:
                worker.act("n1", RunCommand(words=("sleep", "60")))
            except WorkError as error:
                failed.append(error)

        thread = threading.Thread(target=act)
        thread.start()
        os.kill(child_of(worker), signal.SIGKILL)
        thread.join(120)
        assert [error.status for error in failed] == ["lost"]
        assert "killed by signal 9" in failed[0].why


class Busy:
    """A host in the middle of a command; what its call came to."""

    def __init__(self, worker: SshExecutor, name: str, folder: Path) -> None:
        self.failed: list[WorkError] = []
        self._begun = folder / f"begun-{name}"
        self._words = ("sh", "-c", f"echo > {self._begun}; sleep 60")
        self._thread = threading.Thread(target=self._act, args=(worker, name))
        self._thread.start()
        wait_for(self._begun.exists)

    def _act(self, worker: SshExecutor, name: str) -> None:
        try:
            worker.act(name, RunCommand(words=self._words))
        except WorkError as error:
            self.failed.append(error)

    def told(self) -> WorkError:
        self._thread.join(40)
        (error,) = self.failed
        return error


@pytest.mark.usefixtures("own_worker")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "hangs"])
def test_worker_child_that_dies_or_hangs_fails_calls_in_progress_and_is_replaced(
    host: Host,
    server: Sshd,
    tmp_path: Path,
    tools: dict[str, Callable[..., object]],
    monkeypatch: pytest.MonkeyPatch,
    how: int,
) -> None:
    before = tools["children"]()
    monkeypatch.setattr(child, "STALL", 1)
    hosts = [replace(host, name=name) for name in ("n1", "n2", "n3")]
    with SshExecutor(hosts, options(deadline=15)) as worker:
        worker.open("n1")
        worker.open("n2")
        first = child_of(worker)
        busy = Busy(worker, "n1", tmp_path)
        os.kill(first, how)
        error = busy.told()
        assert error.status == "lost"
        assert ("killed by signal 9" if how == signal.SIGKILL else "hung") in str(error)
        wait_for(lambda: not server.sessions())  # and with them their locks
        with pytest.raises(WorkError, match="no session: it was not opened") as told:
            worker.act("n2", RunCommand(words=("true",)))
        assert told.value.status == "lost"
        for name in ("n3", "n2", "n1"):
            worker.open(name)
            assert worker.act(name, RunCommand(words=("true",))).ok
        assert child_of(worker) != first
    assert tools["children"]() <= before
    wait_for(lambda: not server.sessions())


@pytest.mark.usefixtures("own_worker")
def test_worker_child_that_dies_before_a_host_is_opened_does_not_affect_the_host(
    host: Host,
) -> None:
    """Killed between any two calls, and found out by the next one alone."""
    with SshExecutor([host], options()) as worker:
        for _ in range(3):
            os.kill(child_of(worker), signal.SIGKILL)
            worker.open("n1")
            assert worker.act("n1", RunCommand(words=("true",))).ok


@pytest.mark.usefixtures("own_worker")
def test_a_new_worker_child_refuses_actions_until_the_lock_is_taken_again(host: Host) -> None:
    with SshExecutor([host], options()) as worker:
        worker.open("n1")
        with suppress(WorkError, LockedError):
            worker.lock("n1", "me")
        os.kill(child_of(worker), signal.SIGKILL)
        worker.open("n1")
        with pytest.raises(WorkError, match="nothing was done: the lock on the node") as told:
            worker.act("n1", RunCommand(words=("true",)))
        assert told.value.status == "lost"


@pytest.mark.usefixtures("own_worker")
def test_worker_child_that_cannot_be_started_again_is_reported(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SshExecutor([host], options()) as worker:
        worker.open("n1")
        monkeypatch.setattr(worker_module, "PROGRAM", "nodevet.no_such_program")
        os.kill(child_of(worker), signal.SIGKILL)
        with pytest.raises(WorkError, match="the process that keeps the SSH sessions") as told:
            worker.open("n1")
        assert told.value.status in ("unreachable", "lost")


@pytest.mark.usefixtures("own_worker")
def test_worker_child_that_writes_what_is_not_a_frame_is_killed(
    host: Host, monkeypatch: pytest.MonkeyPatch, tools: dict[str, Callable[..., object]]
) -> None:
    before = tools["children"]()
    with SshExecutor([host], options()) as worker:
        monkeypatch.setattr(worker_module, "PROGRAM", "this")  # prints verses
        os.kill(child_of(worker), signal.SIGKILL)
        with pytest.raises(WorkError) as told:
            worker.open("n1")
        monkeypatch.undo()
        assert told.value.status in ("lost", "unreachable")
        assert "wrote malformed output: a head that is not JSON" in told.value.why
        worker.open("n1")
    assert tools["children"]() <= before


class Silence:
    """A stream from somebody who says nothing. Time passes only while somebody reads."""

    def __init__(self) -> None:
        self.beats = 0

    def read(self) -> bytes:
        gevent.sleep(60)
        raise AssertionError("the reader waits forever")

    def write(self, data: bytes) -> None:
        assert data == b"\n"
        self.beats += 1


def test_a_lock_holder_without_answers_gives_up_before_the_node_releases_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[bool] = []
    node = SimpleNamespace(close=lambda: closed.append(True))
    target = SimpleNamespace(number=0)
    session: Any = HostSession(*cast(Any, (node, target, None)))
    beat = commands.LOCK_BEAT
    monkeypatch.setattr(commands, "LOCK_BEAT", 0.01)
    session._closed, session._lock = "", Silence()
    session._keep_lock(session._lock)
    assert closed == [True] and session._closed == "the lock on the node was lost"
    silence = Silence()
    session._keep_lock(silence)
    assert 0 < silence.beats * beat <= SILENCE / 2


class Node:
    """A simulated node, and how to work on it past nodevet."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        self.host = fleet.hosts["n1"]

    def shell(self, command: str) -> str:
        """What it says, whatever it ends with."""
        return self.fleet.run_on("n1", command, check=False)


@pytest.fixture(scope="module")
def node(boot: Boot) -> Node:
    return Node(boot("work", SCENARIO, plain=True))


@pytest.fixture
def there(node: Node) -> Iterator[SshExecutor]:
    with SshExecutor([node.host], options(deadline=60)) as running:
        running.open("n1")
        yield running


def gpus(worker: SshExecutor) -> Sequence[Gpu]:
    found = decode(worker.probe("n1"))[Gpus].data
    assert found is not None and found.gpus is not None
    return found.gpus


def see(worker: SshExecutor, kind: str, name: str) -> State:
    (seen,) = worker.look("n1", [Resource(kind=kind, name=name)])
    return seen


UNIT_FILE = "/etc/systemd/system/nodevet-test.service"
SERVICE = """\
[Service]
ExecStart=/bin/sh -c '{}'
[Install]
WantedBy=multi-user.target
"""


@pytest.mark.timeout(300)
def test_a_unit_is_made_enabled_restarted_masked_and_taken_away(there: SshExecutor) -> None:
    name = "nodevet-test.service"
    assert see(there, "unit", name) == State(
        resource=Resource(kind="unit", name=name), exists=False
    )
    absent = SetUnit(name=name, enabled=False, running=False)
    assert there.act("n1", absent).ok, "what is not there is neither enabled nor running"

    def do(**wanted: bool) -> dict[str, object]:
        done = there.act("n1", SetUnit(name=name, **wanted))
        assert done.ok, done
        seen = see(there, "unit", name)
        assert seen.exists and not seen.why
        return {key: seen.value[key] for key in ("enabled", "active", "masked")}

    assert there.act("n1", WriteFile(path=UNIT_FILE, content=SERVICE.format("sleep 1d"))).ok
    assert do() == {"enabled": "disabled", "active": "inactive", "masked": False}
    assert do(restart=True)["active"] == "inactive", "a restart starts nothing"
    on = {"enabled": "enabled", "active": "active", "masked": False}
    assert do(enabled=True, running=True) == on == do(enabled=True, running=True)
    pid = there.act("n1", RunCommand(words=("systemctl", "show", "-pMainPID", name))).output
    assert do(restart=True) == on
    assert there.act("n1", RunCommand(words=("systemctl", "show", "-pMainPID", name))).output != pid
    assert do(enabled=False) == {**on, "enabled": "disabled"}
    assert do(running=False)["active"] in ("inactive", "failed")
    done = there.act("n1", SetUnit(name=name, masked=True))
    assert not done.ok and "already exists" in done.output
    assert there.act("n1", WriteFile(path=UNIT_FILE, content=None)).ok
    assert there.act("n1", SetUnit(name=name)).ok
    assert not see(there, "unit", name).exists
    assert there.act("n1", SetUnit(name=name, masked=True)).ok
    assert see(there, "unit", name).value["masked"] is True
    assert there.act("n1", SetUnit(name=name, masked=False)).ok
    assert not see(there, "unit", name).exists


@pytest.mark.timeout(300)
def test_a_unit_that_fails_or_hangs_says_so_with_its_log(there: SshExecutor) -> None:
    name = "nodevet-test.service"
    text = SERVICE.replace("[Service]", "[Service]\nType=oneshot")
    assert there.act(
        "n1", WriteFile(path=UNIT_FILE, content=text.format("echo out of luck; exit 3"))
    ).ok
    done = there.act("n1", SetUnit(name=name, running=True))
    assert not done.ok and done.code == 1
    assert "out of luck" in done.output and "status=3" in done.output
    assert there.act(
        "n1", WriteFile(path=UNIT_FILE, content=text.format("echo waiting; sleep 1d"))
    ).ok
    done = there.act("n1", SetUnit(name=name, running=True), seconds=20)
    assert not done.ok and done.code == 124 and "waiting" in done.output
    assert there.act("n1", SetUnit(name=name, enabled=False, running=False)).ok
    assert there.act("n1", WriteFile(path=UNIT_FILE, content=None)).ok
    assert not there.act("n1", SetUnit(name="no-such.service", running=True)).ok
    assert not there.act("n1", SetUnit(name="no-such.service", enabled=True)).ok


@pytest.mark.timeout(300)
def test_a_drop_in_creates_its_folder_and_removes_it_again(there: SshExecutor) -> None:
    folder = "/etc/systemd/system/ssh.service.d"
    assert there.act("n1", WriteFile(path=f"{folder}/nodevet-x.conf", content="[Unit]\n")).ok
    assert see(there, "file", f"{folder}/nodevet-x.conf").value["mode"] == 0o644
    assert there.act("n1", RunCommand(words=("stat", "-c%a %U", folder))).output == "755 root"
    assert there.act("n1", WriteFile(path=f"{folder}/nodevet-x.conf", content=None)).ok
    assert not there.act("n1", RunCommand(words=("stat", folder))).ok
    assert not there.act("n1", WriteFile(path="/etc/no-such/x.conf", content="")).ok


@pytest.mark.timeout(300)
def test_the_kernel_s_and_the_driver_s_refusals_are_reported(there: SshExecutor) -> None:
    path = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    before = see(there, "kernel", path).value
    done = there.act("n1", WriteKernel(path=path, value="warp"))
    assert not done.ok and "Invalid argument" in done.output
    assert see(there, "kernel", path).value == before
    assert there.act("n1", WriteKernel(path=path, value="powersave")).ok
    assert see(there, "kernel", path).value == "powersave"
    assert there.act("n1", WriteKernel(path=path, value=before)).ok

    uuid = str(gpus(there)[0].uuid)
    limit = f"{uuid}:power_limit_mw"
    assert see(there, "gpu", limit).value == 700000
    assert there.act("n1", RunCommand(words=("nvidia-smi", "-i", uuid, "-pl", "500"))).ok
    assert see(there, "gpu", limit).value == 500000
    assert not there.act("n1", RunCommand(words=("nvidia-smi", "-i", uuid, "-pl", "9000"))).ok
    assert see(there, "gpu", limit).value == 500000
    assert there.act("n1", RunCommand(words=("nvidia-smi", "-i", uuid, "-pl", "700"))).ok
    locked = see(there, "gpu", f"{uuid}:locked_clock_graphics_min_mhz")
    assert not locked.exists and not locked.why, "no driver tells"
    assert see(there, "gpu", "GPU-0:power_limit_mw").why
    assert see(there, "gpu", f"{uuid}:no_such_field").why


@pytest.mark.timeout(300)
def test_a_full_or_read_only_disk_leaves_the_old_file(there: SshExecutor) -> None:
    def run(*words: str) -> None:
        done = there.act("n1", RunCommand(words=words))
        assert done.ok, done

    run("mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt")
    try:
        assert there.act("n1", WriteFile(path="/mnt/f", content="old")).ok
        done = there.act("n1", WriteFile(path="/mnt/f", content="x" * (1 << 19)))
        assert not done.ok and "No space left on device" in done.output
        assert base64.b64decode(see(there, "file", "/mnt/f").value["content"]) == b"old"
        run("mount", "-o", "remount,ro", "/mnt")
        for content in ("new", None):
            done = there.act("n1", WriteFile(path="/mnt/f", content=content))
            assert not done.ok and "Read-only file system" in done.output
        assert there.act("n1", RunCommand(words=("ls", "-A", "/mnt"))).output == "f"
    finally:
        run("umount", "/mnt")


@pytest.mark.timeout(300)
def test_a_node_reports_processes_on_gpus_and_managers_of_settings(
    there: SshExecutor, node: Node
) -> None:
    found = decode(there.probe("n1"))[Processes].data
    assert found is not None and found.complete
    (train,) = [each for each in found.processes or () if each.command == "train"]
    assert train.gpu_minors == (1,)
    bound = see(there, "process", str(train.pid))
    assert bound.value["started_s"] > 0 and bound.value["cpus"] and bound.value["mems"]

    assert see(there, "package", "systemd").value["version"]
    assert not see(there, "package", "no-such-package").exists
    assert not see(there, "package", "no-such-package").why

    resources = [
        Resource(kind="kernel", name="/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"),
        Resource(kind="kernel", name="/proc/sys/kernel/numa_balancing"),
        Resource(kind="gpu", name=f"{gpus(there)[0].uuid}:power_limit_mw"),
        Resource(kind="unit", name="nvidia-persistenced.service"),
    ]
    assert set(there.managers("n1", resources).values()) == {()}, "a plain node has none"
    node.shell(
        "mkdir -p /etc/cron.d; echo '@reboot root nvidia-smi -pl 500' > /etc/cron.d/cap; "
        "printf '[Service]\\nExecStart=sleep 1d\\nExecStartPost=-nvidia-smi -pl 500\\n' "
        "> /etc/systemd/system/cap.service; systemctl daemon-reload"
    )
    cap = resources[2]
    assert there.managers("n1", [cap]) == {cap.label: ("/etc/cron.d/cap:1",)}
    node.shell("systemctl start cap")
    unit = "unit cap.service (/etc/systemd/system/cap.service:3)"
    assert there.managers("n1", [cap]) == {cap.label: (unit, "/etc/cron.d/cap:1")}
    node.shell("systemctl stop cap; rm /etc/cron.d/cap /etc/systemd/system/cap.service")
    node.shell("systemctl daemon-reload; nvidia-smi -pl 700")


HOLD = """
import sys, time
from pathlib import Path
from nodevet.resource import RunCommand
from nodevet.fleet import Options
from nodevet.fleet.controller.ssh_executor import SshExecutor
from nodevet.inventory import read
(host,) = read((), inventories=[sys.argv[1]])
with SshExecutor([host], Options(ssh_config=Path("/dev/null"))) as worker:
    worker.open("n1")
    worker.lock("n1", "the first")
    print("held", flush=True)
    worker.act("n1", RunCommand(words=("sh", "-c", sys.argv[2])), seconds=600)
    time.sleep(600)
"""


@contextmanager
def controller(node: Node, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """One in a process of its own, which holds the lock and runs a script under it."""
    inventory = str(node.fleet.place.inventory)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, inventory, script], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def lock_of(worker: SshExecutor, who: str) -> LockedError | None:
    """Whose lock it is if it is not `who`'s now."""
    try:
        worker.lock("n1", who)
    except LockedError as error:
        return error
    return None


@pytest.mark.timeout(300)
def test_one_controller_holds_the_lock_and_releases_it_when_killed(
    there: SshExecutor, node: Node
) -> None:
    with controller(node, "true"):
        told = lock_of(there, "the second")
        assert told is not None and told.who == "the first" and told.since.startswith("20")
        assert told.running == "" and there.probe("n1"), "that costs no session"
    wait_for(lambda: lock_of(there, "the second") is None)
    with SshExecutor([node.host], options()) as third:
        third.open("n1")
        with pytest.raises(LockedError, match="the second"):
            third.lock("n1", "the third")
        there.close("n1")
        wait_for(lambda: not holders(node))
        third.lock("n1", "the third")
        assert third.act("n1", RunCommand(words=("systemd-run", "sleep", "1d"))).ok
    wait_for(lambda: not holders(node))
    assert node.shell("stat -c '%a %U' /run/nodevet").split() == ["700", "root"]


def holders(node: Node) -> list[str]:
    """Processes on the node that hold or want the lock."""
    return node.shell("fuser /run/nodevet/lock 2>/dev/null || pgrep -f 'zlib.decompress'").split()


SLOW = """\
echo > /run/begun
until [ -e /run/go ]; do sleep 0.1; done
sleep 0.5
echo > /run/ended
"""


@pytest.mark.timeout(300)
def test_the_lock_is_held_while_a_command_of_a_dead_controller_runs(
    there: SshExecutor, node: Node
) -> None:
    def exists(path: str) -> bool:
        return see(there, "file", path).exists

    with (
        SshExecutor([node.host], options(deadline=30)) as second,
        controller(node, SLOW) as first,
    ):
        second.open("n1")
        wait_for(lambda: exists("/run/begun"))
        first.kill()

        def running() -> str:
            told = lock_of(second, "the second")
            assert told is not None and told.who == "the first", "it must not be had"
            return told.running

        told = wait_for(running)
        assert "(sh)" in told and "still runs: pid " in str(lock_of(second, "the second"))
        assert not exists("/run/ended")
        assert there.act("n1", RunCommand(words=("touch", "/run/go"))).ok
        assert lock_of(second, "the second") is None and exists("/run/ended")

        assert second.act("n1", RunCommand(words=("true",))).ok
        node.shell("echo another has taken it > /run/nodevet/lock")
        with pytest.raises(
            WorkError, match=r"nothing was done.*another controller has taken"
        ) as lost:
            second.act("n1", RunCommand(words=("touch", "/run/late")))
        assert lost.value.status == "lost" and not exists("/run/late")
        second.open("n1")
        with pytest.raises(WorkError, match=r"nothing was done: the lock .* is not held") as lost:
            second.act("n1", RunCommand(words=("touch", "/run/late")))
        with pytest.raises(WorkError, match="no session"):
            second.reboot("n1", seconds=9)
        assert lost.value.status == "lost" and not exists("/run/late")
        second.open("n1")
        assert wait_for(lambda: lock_of(second, "the second") is None)
        assert second.act("n1", RunCommand(words=("touch", "/run/late"))).ok and exists("/run/late")


@pytest.mark.timeout(300)
def test_without_its_lock_a_session_does_nothing_more(there: SshExecutor, node: Node) -> None:
    there.lock("n1", "me")
    node.shell("pkill -9 -f '[z]lib.decompress'")

    def lost() -> bool:
        with suppress(WorkError):
            there.act("n1", RunCommand(words=("true",)))
            return False
        return True

    wait_for(lost)
    with pytest.raises(WorkError, match="the lock on the node was lost"):
        there.act("n1", RunCommand(words=("true",)))


@pytest.mark.timeout(300)
def test_a_user_with_sudo_works_as_root(node: Node) -> None:
    node.shell(
        "useradd -m op; usermod -p '*' op; mkdir -p /etc/sudoers.d; chmod 755 / /etc /etc/ssh; "
        "echo 'op ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/op; chmod 440 /etc/sudoers.d/op"
    )
    op = replace(node.host, user="op")
    with SshExecutor([op], options()) as plain:
        plain.open("n1")
        assert not plain.act("n1", WriteFile(path="/etc/sysctl.d/90-nodevet-x.conf", content="")).ok
        plain.lock("n1", "op")
    with SshExecutor([replace(op, sudo=True)], options()) as worker:
        worker.open("n1")
        worker.lock("n1", "op")
        assert worker.act(
            "n1", WriteFile(path="/etc/sysctl.d/90-nodevet-x.conf", content="# é\n")
        ).ok
        seen = see(worker, "file", "/etc/sysctl.d/90-nodevet-x.conf")
        assert (seen.value["owner"], base64.b64decode(seen.value["content"])) == (
            0,
            b"# \xc3\xa9\n",
        )
        assert worker.act("n1", WriteKernel(path="/proc/sys/kernel/numa_balancing", value="0")).ok
        assert worker.act("n1", SetUnit(name="ssh.service")).ok
        assert worker.act("n1", WriteFile(path="/etc/sysctl.d/90-nodevet-x.conf", content=None)).ok
        assert worker.probe("n1")
        done = worker.act("n1", RunCommand(words=("sleep", "55")), seconds=4)
        assert done.code == 124
        assert not node.shell("pgrep -f '[s]leep 55'")


DEPLOY = """
from pyinfra.api import operation
from nodevet.resource import RunCommand
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit
from nodevet.resource import perform

@operation(is_idempotent=False)
def everything():
    yield from perform((
        WriteFile(path="/etc/tmpfiles.d/nodevet-cli.conf", content="# no newline", mode=0o600),
        WriteKernel(
            path="/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", value="powersave"
        ),
        SetUnit(name="ssh.service", running=True),
        RunCommand(words=("nvidia-smi", "-pl", "600")),
    ))

everything()
"""


@pytest.mark.timeout(300)
def test_a_plain_pyinfra_deploy_performs_the_same_actions(
    node: Node, there: SshExecutor, tmp_path: Path
) -> None:
    place = node.fleet.place
    (tmp_path / "deploy.py").write_text(DEPLOY)
    data = {
        "ssh_hostname": node.host.address,
        "ssh_user": "root",
        "ssh_key": str(place.key),
        "ssh_known_hosts_file": str(place.known_hosts),
    }
    (tmp_path / "inventory.py").write_text(f"hosts = [('n1', {data!r})]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pyinfra", "-y", "inventory.py", "deploy.py"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    seen = see(there, "file", "/etc/tmpfiles.d/nodevet-cli.conf")
    assert base64.b64decode(seen.value["content"]) == b"# no newline"
    assert (seen.value["mode"], seen.value["owner"]) == (0o600, 0)
    path = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    assert see(there, "kernel", path).value == "powersave"
    uuids = [str(each.uuid) for each in gpus(there)]
    limits = [see(there, "gpu", f"{uuid}:power_limit_mw").value for uuid in uuids]
    assert limits == [600000, 600000]


@pytest.mark.timeout(300)
def test_a_reboot_ends_with_another_boot_id_and_without_a_lock(
    there: SshExecutor, node: Node
) -> None:
    before = there.act("n1", RunCommand(words=("cat", "/proc/sys/kernel/random/boot_id"))).output
    there.lock("n1", "me")
    after = there.reboot("n1", seconds=150)
    host = decode(there.probe("n1"))[HostInfo].data
    assert host is not None and host.boot_id == after != before
    with SshExecutor([node.host], options()) as other:
        other.open("n1")
        other.lock("n1", "another")
