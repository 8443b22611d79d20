"""The state of real TCP connections, also of those in another network namespace."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe import connections
from nodevet.remote.probe.connections import Connections

RECEIVER = """
import socket, sys
server = socket.create_server((sys.argv[1], 0), family=int(sys.argv[2]))
near = socket.create_connection(server.getsockname()[:2])
far, _ = server.accept()
far.sendall(b"x" * 4000)
near.recv(1)
print(near.fileno(), flush=True)
sys.stdin.readline()
far.sendall(b"y" * 5000)
near.recv(1)
print("sent", flush=True)
sys.stdin.readline()
"""
V4, V6 = ["127.0.0.1", "2"], ["::1", "10"]


@contextmanager
def receiver(*prefix: str, address: list[str] = V4) -> Iterator[tuple[Any, str, str]]:
    """A process that received 4 kB, its folder in /proc and its socket."""
    words = [*prefix, sys.executable, "-c", RECEIVER, *address]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as process:
        try:
            fd = process.stdout.readline().strip()
            folder = f"/proc/{process.pid}/"
            yield process, folder, str(Path(folder, "fd", fd).readlink())
        finally:
            process.kill()


def state(folder: str, target: str) -> dict[str, Any]:
    watched = Connections("/")
    (words,) = (row for row in watched.rows(folder) if row[9] == target[len("socket:[") : -1])
    return watched.state(folder, words)


@pytest.mark.parametrize("address", [V4, V6], ids=["IPv4", "IPv6"])
def test_the_state_of_a_connection(address: list[str]) -> None:
    with receiver(address=address) as (process, folder, target):
        before = state(folder, target)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "sent\n"
        record = state(folder, target)
    assert (before["receive_queue_b"], record["receive_queue_b"]) == (3999, 4000 + 5000 - 2)
    assert record["received"] == before["received"] + 1
    assert record["resent"] == record["out_of_order"] == record["resends_now"] == 0
    assert record["send_queue_b"] == 0 and record["sent"] >= 2
    assert 0 < record["round_trip_us"] < 10**6 and record["silent_ms"] < 100_000


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"),
    reason="this machine gives no network namespace",
)
def test_a_connection_in_the_network_namespace_of_a_container() -> None:
    own = Path("/proc/self/ns/net").readlink()
    apart = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
    with receiver(*apart) as (_, folder, target):
        assert Path(folder, "ns/net").readlink() != own
        assert state(folder, target)["receive_queue_b"] == 3999
    assert Path("/proc/self/ns/net").readlink() == own


def test_a_connection_that_was_closed_is_not_taken_for_the_socket_that_listens() -> None:
    with receiver() as (_, folder, target), connections.open_channel() as channel:
        (words,) = (row for row in Connections("/").rows(folder) if f"[{row[9]}]" in target)
        nobody = "0100007F:0001"
        with pytest.raises(ValueError, match="closed meanwhile"):
            connections.ask(channel, [words[0], words[2], nobody, *words[3:]])
        with pytest.raises(OSError, match="No such file"):
            connections.ask(channel, [words[0], nobody, nobody, *words[3:]])


def test_the_tables_of_a_namespace_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watched, paths = Connections("/"), []
    monkeypatch.setattr(connections, "read_bytes", lambda *words: paths.append(words[1]) or b"")
    for pid in ("self", os.getpid(), os.getppid()):
        assert watched.rows(f"/proc/{pid}/") == []
    assert paths == ["/proc/self/net/tcp", "/proc/self/net/tcp6"]


@pytest.mark.parametrize("body", [b"", b"\0" * 71, b"\0" * 72 + b"\x03\0\x02\0"])
def test_an_answer_with_odd_bytes(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        connections.parse_reply(body, 0)


def test_an_old_kernel_has_fewer_fields() -> None:
    info = (4 + 104).to_bytes(2, "little") + b"\x02\0" + bytes(100) + b"\x07\0\0\0"
    values = connections.parse_reply(bytes(72) + info, 0)
    assert values["resent"] == 7 and values["sent"] is None
    assert values["errors"]["sent"] == "this kernel does not count it"
