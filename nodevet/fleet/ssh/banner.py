"""The first bytes of an SSH server, and how much of it may be read before it is trusted.

RFC 4253: lines before the version string (4.2), packets of at most 35,000 bytes (6.1). A server
may send for ever, and faster than it is read: then no other host of the shard would get a turn.
Shard process only.
"""

import re
import socket
from typing import Any

import gevent
from paramiko import SSHException
from paramiko.packet import Packetizer

from nodevet.base.durations import elapsed
from nodevet.fleet.ssh.errors import HungUpError, NoBannerError, UnreachableError, refused

BANNER = re.compile(rb"^SSH-[^\n]*\n", re.MULTILINE)
BUSY = re.compile(rb"^(Exceeded MaxStartups|Not allowed at this time)", re.MULTILINE)
BANNER_LIMIT = 8192  # bytes, of whatever precedes the banner too
PACKET_LIMIT = 1 << 18  # bytes; what a server may send at once, RFC 4253 section 6.1, and room
HANDSHAKE_LIMIT = 1 << 20  # bytes until the keys are agreed on; a key exchange takes some thousand
TURN = 1 << 18  # bytes of one server, after which the others get a turn


class BufferedSocket:
    """A socket, or a channel that acts as one, of which the first bytes were read already."""

    def __init__(self, sock: socket.socket, heard: bytes) -> None:
        self._sock = sock
        self._heard = heard

    def recv(self, size: int) -> bytes:
        if self._heard:
            first, self._heard = self._heard[:size], self._heard[size:]
            return first
        return self._sock.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class BoundedPacketizer(Packetizer):
    """paramiko's, which takes packets of any size and any number of them, with bounds."""

    agreed = False  # whether the key exchange is over

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._read = 0
        self._turn = 0

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Raises SSHException for more than a server may send."""
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
    """Wait for the server's first line; what was read of it is read again from what is returned.

    paramiko reads without bound until a line ends, and does not say what came instead. Raises
    HungUpError, NoBannerError and UnreachableError; the socket is closed then.
    """
    seen = b""
    try:
        with gevent.Timeout(seconds, TimeoutError()):
            while not BANNER.search(seen):
                if busy := BUSY.search(seen):
                    raise HungUpError(f"the SSH server is busy: {busy[1].decode()}")
                if len(seen) >= BANNER_LIMIT:
                    raise UnreachableError("not an SSH server")
                more = sock.recv(BANNER_LIMIT - len(seen))
                if not more:
                    raise HungUpError("connection closed before the SSH banner")
                seen += more
    except TimeoutError as error:
        sock.close()
        if seen:
            raise UnreachableError("not an SSH server") from error
        why = f"timed out after {elapsed(seconds)} (waiting for the SSH banner)"
        raise NoBannerError(why) from error
    except OSError as error:
        sock.close()
        raise HungUpError(refused(error)) from error
    except BaseException:
        sock.close()
        raise
    return BufferedSocket(sock, seen)
