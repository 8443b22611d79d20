"""The first bytes of an SSH server, and limits of its output before it is trusted.

RFC 4253: lines before the version string (4.2), packets of at most 35,000 bytes (6.1). A server
may send forever, and faster than it is read: no other host of the shard would get a turn. Shard
process only.
"""

import re
import socket
from typing import Any

import gevent
from paramiko import SSHException
from paramiko.packet import Packetizer

from nodevet.base.durations import elapsed
from nodevet.fleet.ssh.errors import HungUpError, NoBannerError, UnreachableError, error_text

BANNER = re.compile(rb"^SSH-[^\n]*\n", re.MULTILINE)
BUSY = re.compile(rb"^(Exceeded MaxStartups|Not allowed at this time)", re.MULTILINE)
BANNER_LIMIT = 8192  # bytes, with the lines before the banner
PACKET_LIMIT = 1 << 18  # bytes; RFC 4253 section 6.1 allows fewer
HANDSHAKE_LIMIT = 1 << 20  # bytes until the keys are agreed on; a key exchange takes some thousand
TURN = 1 << 18  # bytes of one server before the others get a turn


class BufferedSocket:
    """A socket, or a channel that acts as one, whose first bytes were read already."""

    def __init__(self, sock: socket.socket, head: bytes) -> None:
        self._sock = sock
        self._head = head

    def recv(self, size: int) -> bytes:
        if self._head:
            first, self._head = self._head[:size], self._head[size:]
            return first
        return self._sock.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class BoundedPacketizer(Packetizer):
    """paramiko's packetizer with limits for the size and number of packets."""

    agreed = False  # whether the key exchange is over

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._read = 0
        self._turn = 0

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Raises SSHException if the server exceeds a limit."""
        if n > PACKET_LIMIT:
            raise SSHException(f"a packet of {n:,} bytes is too large")
        self._read += n
        if not self.agreed and self._read > HANDSHAKE_LIMIT:
            raise SSHException(f"more than {HANDSHAKE_LIMIT:,} bytes before the keys are agreed on")
        if self._read - self._turn > TURN:
            self._turn = self._read
            gevent.sleep(0)
        return super().read_all(n, check_rekey)


def await_banner(sock: socket.socket, seconds: float) -> BufferedSocket:
    """Wait for the server's first line, and return a socket from which it can be read again.

    paramiko reads a line without limit, and does not report what came instead of a banner. Raises
    HungUpError, NoBannerError and UnreachableError, and then closes the socket.
    """
    data = b""
    try:
        with gevent.Timeout(seconds, TimeoutError()):
            while not BANNER.search(data):
                if busy := BUSY.search(data):
                    raise HungUpError(f"the SSH server is busy: {busy[1].decode()}")
                if len(data) >= BANNER_LIMIT:
                    raise UnreachableError("not an SSH server")
                chunk = sock.recv(BANNER_LIMIT - len(data))
                if not chunk:
                    raise HungUpError("connection closed before the SSH banner")
                data += chunk
    except TimeoutError as error:
        sock.close()
        if data:
            raise UnreachableError("not an SSH server") from error
        why = f"timed out after {elapsed(seconds)} (waiting for the SSH banner)"
        raise NoBannerError(why) from error
    except OSError as error:
        sock.close()
        raise HungUpError(error_text(error)) from error
    except BaseException:
        sock.close()
        raise
    return BufferedSocket(sock, data)
