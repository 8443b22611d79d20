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


class LocalError(UnreachableError):
    """As UnreachableError, for a reason of this machine: a key, a name, a file, a program. It says
    nothing of the host."""


class LocalPassingError(PassingError, LocalError):
    """A reason of this machine, and another try may find it otherwise."""


class HungUpError(PassingError):
    """The server closed the connection before its banner: it may be busy, and take the next one."""


class OtherKeyError(LocalError):
    """The host key is not known, but keys of other types are: the server may have those too."""


class TooLateError(ConnectError):
    """No session in time; the message says what was waited for."""


class NoBannerError(TooLateError):
    """Connected, and not greeted in time: the server may be busy, and greet the next one."""


def may_pass(error: Exception) -> bool:
    """Whether another try may end otherwise. A wrong key or a refused login does not pass."""
    return isinstance(error, (PassingError, TooLateError))


def is_local(error: Exception) -> bool:
    """Whether the reason is this machine's, and not the host's."""
    return isinstance(error, (LocalError, SshConfigError))


def alike(error: Exception, why: str) -> UnreachableError:
    """An error of a jump host, told of a host behind it."""
    if may_pass(error):
        return LocalPassingError(why) if is_local(error) else PassingError(why)
    return LocalError(why) if is_local(error) else UnreachableError(why)


def unresolved(error: socket.gaierror) -> UnreachableError:
    if error.errno == socket.EAI_AGAIN:
        return LocalPassingError("name not found: the name server did not answer")
    return LocalError("name not found")


LOCAL = (errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE)
"""Of connect(2): BindAddress is not one of this machine's, its firewall, its limits."""


def not_connected(error: OSError) -> UnreachableError:
    """A connect(2) that failed."""
    kind = LocalPassingError if error.errno in LOCAL else PassingError
    return kind(refused(error))


def handshake_failure(error: Exception) -> UnreachableError:
    if isinstance(error, IncompatiblePeer):
        return UnreachableError(f"no common algorithm: {error}")
    told = f": {error}" if str(error) else ""
    return PassingError(f"connection closed during key exchange{told}")


def refused(error: OSError) -> str:
    """A failed connect(2), or a connection that broke."""
    return ERRNO.get(error.errno or 0) or error.strerror or "connection lost"
