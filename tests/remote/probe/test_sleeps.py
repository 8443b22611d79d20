"""What a sleeping thread waits for: real threads, and files of /proc with odd bytes."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevet.remote.probe import connections, sleeps

READS = "import os, sys; os.read(int(sys.argv[1]), 1)"


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (b"running\n", None),
        (b"-1 0x7ffe 0x7f\n", ("page fault", None)),
        (b"0 0x3 0x7f 0x20000 0x0 0x0 0x0 0x7ffe 0x7f\n", ("read", 3)),
        (b"202 0x7f12 0x189 0x0 0x0 0x0 0x0 0x7ffe 0x7f\n", ("futex", None)),
        (b"202 0x7f12 0x109 0x0 0x0 0x0 0x0 0x7ffe 0x7f\n", ("shared futex", None)),
        (b"0 0xffffffffffffffff 0x0\n", ("read", None)),
        (b"9999 0x1\n", ("9999", None)),
        (b"", None),
    ],
)
def test_a_row_of_syscall(text: bytes, call: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeps, "NAMES", sleeps.names_of("x86_64"))
    assert sleeps.parse_call(text) == call


@pytest.mark.parametrize("text", [b"\xff\xfe", b"0 zz", b"read 0x3"])
def test_not_a_row_of_syscall(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeps, "NAMES", sleeps.names_of("x86_64"))
    with pytest.raises(ValueError, match=r"."):
        sleeps.parse_call(text)


def test_system_calls_have_names_only_on_known_architectures() -> None:
    assert sleeps.names_of("s390x") == {}
    assert sleeps.names_of("aarch64")[98] == "futex"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0100007F:01BB", "127.0.0.1:443"),
        ("0000000000000000FFFF00000100007F:0016", "127.0.0.1:22"),
        ("00000000000000000000000001000000:0016", "[::1]:22"),
    ],
)
def test_an_address_of_the_kernels_table(text: str, said: str) -> None:
    assert sleeps.address(text) == said


@pytest.fixture
def reader() -> Iterator[tuple[socket.socket, int]]:
    """A process that sleeps in read(2) of a TCP connection; and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    fd = theirs.fileno()
    process = subprocess.Popen([sys.executable, "-c", READS, str(fd)], pass_fds=[fd])
    theirs.close()
    yield ours, process.pid
    process.kill()
    process.wait()
    ours.close()


def test_the_peer_of_a_thread_that_reads_from_a_socket_is_named(
    reader: tuple[socket.socket, int],
) -> None:
    ours, pid = reader
    log = sleeps.SleepLog(f"/proc/{pid}/", pid)
    while ("read", "") not in [(call, "") for call, target in log.sleeps if "socket" in target]:
        log.look()
    (record,) = [each for each in log.records(sleeps.Tables("/", pid)) if each.get("connections")]
    assert (record["call"], record["listens"]) == ("read", False)
    assert record["peer"] == f"127.0.0.1:{ours.getsockname()[1]}"


def test_a_connection_that_a_cut_table_may_lack_is_not_read(
    reader: tuple[socket.socket, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with 10,000 sockets: no connection is not the same as none that was read."""
    monkeypatch.setattr(connections, "LARGEST", 200)
    _, pid = reader
    log = sleeps.SleepLog(f"/proc/{pid}/", pid)
    while not any("socket" in target for _, target in log.sleeps):
        log.look()
    for record in log.records(sleeps.Tables("/", pid)):
        assert "connections" not in record and "listens" not in record


def test_a_file_that_is_closed_before_its_position_is_read() -> None:
    log = sleeps.SleepLog("/proc/self/", os.getpid())
    log.sleeps["read", "/data"] = {"looks": 1, "fd": 9999, "mnt_id": None}
    (record,) = log.records(sleeps.Tables("/", os.getpid()))
    assert (record["path"], record["positions"]) == ("/data", None)
    assert record["errors"] == {"positions": "the file was closed before nodevet read its position"}


def test_the_file_of_a_thread_and_its_file_system(tmp_path: Path) -> None:
    """Its own process: what it asks while it asks it is a read of the file `syscall`."""
    file = tmp_path / "data"
    file.write_bytes(b"0" * 100)
    fd = os.open(file, os.O_RDONLY)
    log = sleeps.SleepLog("/proc/self/", os.getpid())
    try:
        info = sleeps.parse_fdinfo(Path(f"/proc/self/fdinfo/{fd}").read_bytes())
        log.sleeps["read", str(file)] = {
            "looks": 3,
            "fd": fd,
            "mnt_id": info["mnt_id"],
            "first": "0",
            "last": info["pos"],
        }
        (record,) = log.records(sleeps.Tables("/", os.getpid()))
    finally:
        os.close(fd)
    assert (record["path"], record["positions"]) == (str(file), [0, 0])
    assert record["point"] and str(file).startswith(record["point"]) and record["filesystem"]


def test_the_number_of_recorded_sleeps_of_a_thread_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = sleeps.SleepLog("/proc/self/", os.getpid())
    calls = iter(range(1000, 1100))
    monkeypatch.setattr(sleeps, "read_small", lambda _: b"%d 0x0" % next(calls))
    for _ in range(100):
        log.look()
    assert len(log.sleeps) == sleeps.MOST


def test_what_may_not_be_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sleeps, "read_small", refuse)
    log = sleeps.SleepLog("/proc/1/", 1)
    log.look()
    assert (log.why, log.sleeps) == ("EACCES", {})
