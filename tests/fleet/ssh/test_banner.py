"""Servers that flood, or are late to greet: neither costs another host anything."""

import math
import re
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from slow_machine import slowness

from nodevet.base.durations import elapsed
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet_sim.sshd import KeyPair, Sshd, known_hosts_line

MOST = 32 << 20  # bytes; what the windows and buffers on the way may take, and far below a flood
IGNORE = struct.pack(">IBBI6x", 12, 6, 2, 0)  # SSH_MSG_IGNORE, nothing in it: RFC 4253, 11.2
FLOODS = {
    "no line": (b"x" * (1 << 16), "not an SSH server"),
    "lines": (b"welcome\r\n" * 8192, "not an SSH server"),
    "garbage": (b"SSH-2.0-x\r\n" + b"x" * (1 << 16), "connection closed during key exchange: .*"),
    "ignored": (b"SSH-2.0-x\r\n" + IGNORE * 4096, "connection closed during key exchange: .*"),
}


class Flood:
    """Sends to whoever connects, for as long as that is taken. `sent` counts the bytes."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.sent = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._over = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over:
            try:
                peer = self._server.accept()[0]
            except OSError:
                return
            with peer, suppress(OSError):
                rest = self.text.partition(b"\n")[2] or self.text
                self.sent += peer.send(self.text)
                while not self._over and self.sent < 10 * MOST:
                    if select.select([], [peer], [], 0.2)[1]:
                        self.sent += peer.send(rest)

    def end(self) -> None:
        self._over = True
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


@contextmanager
def flood(text: bytes) -> Iterator[Flood]:
    running = Flood(text)
    try:
        yield running
    finally:
        running.end()


class Late:
    """In front of a server, to which it lets connections only after so many got no word."""

    def __init__(self, silent: float, port: int, address: str) -> None:
        self._to = (address, port)
        self._left = silent
        self._held: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.asked = 0
        self._start(self._serve)

    def _start(self, work: Callable[..., None], *given: object) -> None:
        self._threads.append(threading.Thread(target=work, args=given))
        self._threads[-1].start()

    def _serve(self) -> None:
        while True:
            try:
                peer = self._server.accept()[0]
            except OSError:
                return
            self.asked += 1
            self._held.append(peer)
            if self.asked > self._left:
                beyond = socket.create_connection(self._to)
                self._held.append(beyond)
                self._start(self._carry, peer, beyond)
                self._start(self._carry, beyond, peer)

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while text := one.recv(1 << 16):
                other.sendall(text)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self._held:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()


@contextmanager
def late(silent: float, node: Sshd) -> Iterator[Late]:
    running = Late(silent, node.port, node.address)
    try:
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def node(sshd: Callable[..., Sshd]) -> Sshd:
    return sshd(addresses=["127.6.0.1", "127.6.0.2"])


@pytest.fixture
def beside(
    tmp_path: Path,
    node: Sshd,
    key: KeyPair,
    fake: dict[str, str],
    go: Callable[..., dict[str, Visit]],
) -> Callable[..., dict[str, Visit]]:
    """Visits `bad`, which ssh_config reaches by these lines, beside healthy hosts."""

    def run(port: int, *lines: str, **options: object) -> dict[str, Visit]:
        jumps = "ProxyJump bastion" in lines
        stanzas = {
            "bastion": ["HostName 127.6.0.2", f"Port {node.port}"],
            "bad": ["HostName 127.0.0.1", f"Port {port}", *lines],
            "good*": ["HostName 127.6.0.1", f"Port {node.port}", "ProxyJump bastion" * jumps],
        }
        config, known = tmp_path / "config", tmp_path / "known_hosts"
        config.write_text(
            f"User root\nIdentityFile {key.path}\n"
            + "".join(
                f"Host {name}\n" + "".join(f"  {word}\n" for word in words)
                for name, words in stanzas.items()
            )
        )
        known.write_text(node.known_hosts + known_hosts_line("127.0.0.1", port, node.host_key))
        names = ["bad", *(f"good{number}" for number in range(8))]
        hosts = [Host(name=name, python=fake["healthy"]) for name in names]
        visits = go(hosts, **{"ssh_config": config, "known_hosts": known, "shards": 1, **options})
        healthy = {visit.status for name, visit in visits.items() if name != "bad"}
        assert healthy == {Status.VETTED}
        return visits

    return run


WAYS = ("", "ProxyJump bastion")


@pytest.mark.parametrize("way", WAYS, ids=["direct", "jump"])
@pytest.mark.parametrize("kind", FLOODS)
def test_d17_a_server_that_floods_is_dropped_after_some_kilobytes(
    beside: Callable[..., dict[str, Visit]], kind: str, way: str
) -> None:
    text, why = FLOODS[kind]
    with flood(text) as flooding:
        visits = beside(flooding.port, way)
    assert visits["bad"].status is Status.UNREACHABLE
    assert re.fullmatch(why, visits["bad"].why), visits["bad"].why
    assert flooding.sent < MOST


def test_d17_a_proxy_command_that_floods_is_dropped_too(
    beside: Callable[..., dict[str, Visit]],
) -> None:
    bad = beside(1, "ProxyCommand yes")["bad"]
    assert (bad.status, bad.why) == (Status.UNREACHABLE, "not an SSH server")


@pytest.mark.parametrize("way", WAYS, ids=["direct", "jump"])
def test_a_late_banner_is_awaited_again_on_a_second_connection(
    beside: Callable[..., dict[str, Visit]], node: Sshd, way: str
) -> None:
    with late(1, node) as server:
        visits = beside(server.port, way, connect_timeout=5 * slowness(), deadline=240)
    assert (visits["bad"].status, visits["bad"].why) == (Status.VETTED, "")
    assert server.asked == 2


@pytest.mark.parametrize(("times", "asked"), [(30, 2), (1.8, 1)])
def test_banner_that_never_comes_is_asked_for_twice_within_the_deadline(
    beside: Callable[..., dict[str, Visit]], node: Sshd, times: float, asked: int
) -> None:
    timeout = math.ceil(3 * slowness())
    deadline = times * timeout
    with late(math.inf, node) as server:
        visits = beside(server.port, "", connect_timeout=timeout, deadline=deadline)
    bad = visits["bad"]
    assert (bad.status, bad.why) == (
        Status.TIMEOUT,
        f"timed out after {elapsed(timeout)} (waiting for the SSH banner)",
    )
    assert server.asked <= asked and (times < 30 or server.asked == asked)
    assert bad.seconds < deadline


def test_a_late_banner_of_a_jump_host_is_awaited_again(
    tmp_path: Path, node: Sshd, key: KeyPair, fake: dict[str, str], go: Callable[..., Any]
) -> None:
    with late(1, node) as server:
        config, known = tmp_path / "config", tmp_path / "known_hosts"
        config.write_text(
            f"User root\nIdentityFile {key.path}\n"
            f"Host bastion\n  HostName 127.0.0.1\n  Port {server.port}\n"
            f"Host good\n  HostName 127.6.0.1\n  Port {node.port}\n  ProxyJump bastion\n"
        )
        known.write_text(
            node.known_hosts + known_hosts_line("127.0.0.1", server.port, node.host_key)
        )
        host, timeout = Host(name="good", python=fake["healthy"]), 5 * slowness()
        visits = go([host], ssh_config=config, known_hosts=known, connect_timeout=timeout)
    assert (visits["good"].status, visits["good"].why) == (Status.VETTED, "")
    assert server.asked == 2
