"""Why there is no session, in the user's words. Shard process only."""

import errno
import socket

from paramiko.ssh_exception import IncompatiblePeer
from pyinfra.api.exceptions import ConnectError

ERRNO = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
    errno.EADDRNOTAVAIL: "address not available",
}


class UnreachableError(ConnectError):
    """No session; the message says why, in the user's words."""


class SshConfigError(Exception):
    """The host cannot be reached as configured; the message says what to change."""


class PassingError(UnreachableError):
    """As UnreachableError, and another try may find it otherwise: nobody refused who asked."""


class HungUpError(PassingError):
    """The server closed the connection before its banner: it may be busy, and take the next one."""


class OtherKeyError(UnreachableError):
    """The host key is not known, but keys of other types are: the server may have those too."""


class TooLateError(ConnectError):
    """No session in time; the message says what was waited for."""


class NoBannerError(TooLateError):
    """Connected, and not greeted in time: the server may be busy, and greet the next one."""


def may_pass(error: Exception) -> bool:
    """Whether another try may end otherwise. A wrong key or a refused login does not pass."""
    return isinstance(error, (PassingError, TooLateError))


def unresolved(error: socket.gaierror) -> UnreachableError:
    if error.errno == socket.EAI_AGAIN:
        return PassingError("name not found: the name server did not answer")
    return UnreachableError("name not found")


def handshake_failure(error: Exception) -> UnreachableError:
    if isinstance(error, IncompatiblePeer):
        return UnreachableError(f"no common algorithm: {error}")
    told = f": {error}" if str(error) else ""
    return PassingError(f"connection closed during key exchange{told}")


def refused(error: OSError) -> str:
    """A failed connect(2), or a connection that broke."""
    return ERRNO.get(error.errno or 0) or error.strerror or "connection lost"
