"""The state of real TCP connections, also of those in another network namespace."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
            yield process, folder, os.readlink(f"{folder}fd/{fd}")
        finally:
            process.kill()


def read_twice(process: Any, folder: str, target: str) -> dict[str, Any]:
    watched = Connections()
    watched.look(folder, "recvfrom", target)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "sent\n"
    record = watched.record(folder, target)
    watched.close()
    return record


@pytest.mark.parametrize("address", [V4, V6], ids=["IPv4", "IPv6"])
def test_what_a_connection_received_between_two_looks(address: list[str]) -> None:
    with receiver(address=address) as (process, folder, target):
        record = read_twice(process, folder, target)
    first, last = record["received_b"]
    assert last - first == 5000
    assert record["receive_queue_b"] == 4000 + 5000 - 2
    assert record["send_queue_b"] == record["resends_now"] == 0
    assert record["resent"] == [0, 0] and record["out_of_order"] == [0, 0]
    assert 0 < record["round_trip_us"] < 10**6 and record["silent_ms"] < 100_000


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root")
def test_a_connection_in_the_network_namespace_of_a_container() -> None:
    own = os.readlink("/proc/self/ns/net")
    apart = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
    with receiver(*apart) as (process, folder, target):
        assert os.readlink(folder + "ns/net") != own
        record = read_twice(process, folder, target)
    assert record["received_b"][1] - record["received_b"][0] == 5000
    assert os.readlink("/proc/self/ns/net") == own


def test_a_connection_that_the_kernel_does_not_know_is_not_read() -> None:
    with receiver() as (_, folder, target):
        words = connections.table(folder)[target[len("socket:[") : -1]]
        words[2] = "0100007F:0001"
        with connections.open_channel() as channel, pytest.raises(OSError, match="No such file"):
            connections.ask(channel, words)


def test_a_socket_of_another_kind_and_other_calls_are_left_out() -> None:
    watched = Connections()
    watched.look("/proc/self/", "recvfrom", "socket:[1]")
    watched.look("/proc/self/", "epoll_wait", "socket:[2]")
    watched.look("/proc/self/", "read", "pipe:[3]")
    assert list(watched.first) == ["socket:[1]"] and watched.first["socket:[1]"][0] is None


@pytest.mark.parametrize("body", [b"", b"\0" * 71, b"\0" * 72 + b"\x03\0\x02\0"])
def test_an_answer_with_odd_bytes(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        connections.parse_reply(body)


def test_an_old_kernel_has_fewer_fields() -> None:
    info = (4 + 104).to_bytes(2, "little") + b"\x02\0" + bytes(100) + b"\x07\0\0\0"
    values = connections.parse_reply(bytes(72) + info)
    assert values["resent"] == 7 and "received_b" not in values
