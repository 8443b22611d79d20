"""The first bytes of an SSH server: RFC 4253 section 4.2, with lines before the version string.

A server may send lines forever, and faster than they are read: no other host of the shard would get
a turn. Shard process only.
"""

import re
from select import POLLERR, POLLHUP, POLLRDHUP

import gevent
from gevent import socket
from gevent.monkey import get_original

from nodevet.base.durations import elapsed
from nodevet.fleet.ssh.errors import HungUpError, NoBannerError, UnreachableError, error_text

BANNER = re.compile(rb"^SSH-[^\n]*\n", re.MULTILINE)
BUSY = re.compile(rb"^(Exceeded MaxStartups|Not allowed at this time)", re.MULTILINE)
BANNER_LIMIT = 8192  # bytes, with the lines before the banner
GLANCE = 0.02  # seconds between two looks at a first line that comes in pieces


def await_banner(sock: socket.socket, seconds: float) -> None:
    """Wait for the server's first line, and leave it for libssh to read.

    libssh does not report what came instead of a banner. Raises HungUpError, NoBannerError and
    UnreachableError, and then closes the socket.
    """
    data = b""
    try:
        with gevent.Timeout(seconds, TimeoutError()):
            while not BANNER.search(data):
                if busy := BUSY.search(data):
                    raise HungUpError(f"the SSH server is busy: {busy[1].decode()}")
                if len(data) >= BANNER_LIMIT:
                    raise UnreachableError("not an SSH server")
                data = _peek(sock, len(data))
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


def _peek(sock: socket.socket, known: int) -> bytes:
    """The bytes that have arrived, more than `known`. Raises HungUpError and OSError."""
    while True:
        data: bytes = sock.recv(BANNER_LIMIT, socket.MSG_PEEK)
        if len(data) > known:
            return data
        if has_hung_up(sock):
            raise HungUpError("connection closed before the SSH banner")
        gevent.sleep(GLANCE)  # the socket is ready as long as there are bytes


def has_hung_up(sock: socket.socket) -> bool:
    """Whether the other end has closed its side, as far as this machine knows."""
    poll = get_original("select", "poll")()
    poll.register(sock.fileno(), POLLRDHUP)
    return any(event & (POLLERR | POLLHUP | POLLRDHUP) for _, event in poll.poll(0))
