"""A nodevet that begins as a copy of a preloaded one does what it does in a process of its own."""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import preloaded
import preloaded_supervisor
import preloaded_workers
import pytest

from nodevet.fleet.controller.child import ChildProcess
from nodevet_sim.nspawn import supervisor
from nodevet_sim.nspawn.needs import missing

NODEVET = [sys.executable, "-m", "nodevet"]
MOUNTS = Path("/proc/self/ns/mnt")
of_threads = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The words of each command that begins as a copy."""
    begin, found = preloaded._begin, []

    def heard(process: Any, asked: Any) -> None:
        found.append(asked["args"])
        begin(process, asked)

    monkeypatch.setattr(preloaded, "_begin", heard)
    return found


def run(folder: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*NODEVET, *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "70", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [["--version"], ["list", "checks"], ["check", "--nope"], ["lint", "site.yaml"], ["probe", "x"]],
    ids=" ".join,
)
def test_a_forked_nodevet_prints_and_exits_like_a_new_process(
    words: list[str], tmp_path: Path, copies: list[Any]
) -> None:
    (tmp_path / "site.yaml").write_text("nodevet: 1\nexpect: {uptme: {}}\n")
    copy = run(tmp_path, *words)
    assert len(copies) == 1
    assert run(tmp_path, *words, NODEVET_PRELOADED="0") == copy
    assert len(copies) == 1


def test_environment_variables_that_python_reads_at_startup_need_a_new_process(
    tmp_path: Path, copies: list[Any]
) -> None:
    assert run(tmp_path, "--version", PYTHONHASHSEED="7")[0] == 0
    assert run(tmp_path, "--version", LC_ALL="C")[0] == 0
    assert not copies


def interrupted(folder: Path, number: int, **environment: str) -> int:
    """How it ends that was sent a signal while it wrote what nobody reads."""
    env = {**os.environ, **environment}
    with subprocess.Popen(
        [*NODEVET, "list", "checks"], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=-3
    ) as process:
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        select.select([process.stdout], [], [])
        assert f"\nPPid:\t{os.getpid()}\n" in Path(f"/proc/{process.pid}/status").read_text()
        process.send_signal(number)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_forked_nodevet_handles_signals_like_a_new_process(
    number: signal.Signals, tmp_path: Path, copies: list[Any]
) -> None:
    copy = interrupted(tmp_path, number)
    assert len(copies) == 1
    assert interrupted(tmp_path, number, NODEVET_PRELOADED="0") == copy != 0


# --- workers ---

WORKER = [sys.executable, "-I", "-m", "nodevet.fleet.worker.serve"]


def copies_of_workers() -> set[str]:
    """The processes of workers that run as copies: children of a child of this process."""
    found = set()
    for child in children(os.getpid()):
        if b"preloaded_workers" in read(Path("/proc", child, "cmdline")):
            found |= children(int(child))
    return found


def children(pid: int) -> set[str]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return {word for file in files for word in read(file).decode().split()}


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended
        return b""


def ended(order: bytes) -> tuple[int, bytes]:
    child = ChildProcess(WORKER, order)
    while child.read():
        pass
    ending = child.end()
    return ending.code, ending.stderr.splitlines()[-1]


def test_a_forked_worker_ends_like_a_worker_in_a_new_process() -> None:
    copy = ended(b"nonsense\n")
    with preloaded_workers.off():
        assert ended(b"nonsense\n") == copy
    assert copy[0] == 1 and copy[1]


@pytest.mark.parametrize("held", [True, False], ids=["the one with its number", "the copy"])
def test_a_forked_worker_and_its_placeholder_process_end_together(held: bool) -> None:
    preloaded_workers.Place.find()
    before = copies_of_workers()
    child = ChildProcess(WORKER)
    while not (new := copies_of_workers() - before):
        pass
    (copy,) = new
    os.kill(child.pid if held else int(copy), signal.SIGKILL)
    assert child.read() == b""
    assert child.end().code == -signal.SIGKILL
    while copy in copies_of_workers():
        pass


# --- supervisors ---


@pytest.fixture
def supervised(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Starts the supervisor of a fleet that has no folder; how it ended, and what it wrote."""
    if missing():
        pytest.skip("; ".join(missing()))

    def start(lock: int) -> tuple[int, str]:
        log = tmp_path / "log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [*preloaded_supervisor.WORDS, "no-such-fleet", str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                pass_fds=(lock,),
            )
        return process.wait(), log.read_text()

    return start


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "lock").open("wb") as held:
        yield held.fileno()


@of_threads
def test_a_forked_supervisor_ends_like_a_supervisor_in_a_new_process(
    supervised: Callable[..., tuple[int, str]], lock: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = supervised(lock)
    monkeypatch.setattr(subprocess.Popen, "_execute_child", subprocess.Popen._execute_child)
    preloaded_supervisor.use()
    assert supervised(lock) == own
    assert own[0] == 1 and "no-such-fleet" in own[1]


@of_threads
def test_a_forked_supervisor_has_its_own_session_mounts_and_files(
    supervised: Callable[..., tuple[int, str]], lock: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess.Popen, "_execute_child", subprocess.Popen._execute_child)
    monkeypatch.setattr(supervisor, "main", tell_of_itself)
    preloaded_supervisor.use()
    code, text = supervised(lock)
    assert text.startswith("{"), text
    told = json.loads(text)
    assert code == 7 and told["words"] == ["no-such-fleet", str(lock)] and told["folder"] == "/"
    assert told["files"] == [0, 1, 2, lock]
    assert told["session"] == told["pid"] != os.getpid()
    assert told["mounts"] != str(MOUNTS.readlink())
    assert not told["shared"], "what it mounts shows elsewhere"


def tell_of_itself() -> int:
    told = {
        "words": sys.argv[1:],
        "folder": str(Path.cwd()),
        "files": sorted(n for n in range(256) if Path(f"/proc/self/fd/{n}").is_symlink()),
        "pid": os.getpid(),
        "session": os.getsid(0),
        "mounts": str(MOUNTS.readlink()),
        "shared": " shared:" in Path("/proc/self/mountinfo").read_text(),
    }
    os.write(1, json.dumps(told).encode())
    return 7
