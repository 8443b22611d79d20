"""Why a session could not be opened, in the user's words. Shard process only."""

import errno
import socket

ERRNO = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
    errno.EADDRNOTAVAIL: "address not available",
}


class NoSessionError(Exception):
    """No session; the message says why, in the user's words."""


class UnreachableError(NoSessionError):
    """No session, and the reason is not a timeout."""


class SshConfigError(Exception):
    """The host cannot be reached as configured; the message says what to change."""


class PassingError(UnreachableError):
    """Like UnreachableError, but another try may succeed: nobody refused the login."""


class LocalError(UnreachableError):
    """Like UnreachableError, for a reason on this machine: a key, a name, a file, a program. It
    tells nothing about the host."""


class LocalPassingError(PassingError, LocalError):
    """A reason on this machine, but another try may succeed."""


class HungUpError(PassingError):
    """The server closed the connection before its banner: it may be busy and take the next one."""


class OtherKeyError(LocalError):
    """The host key is not known, but keys of other types are: the server may have those too."""


class TooLateError(NoSessionError):
    """No session in time; the message names the stage."""


class NoBannerError(TooLateError):
    """Connected, but no banner in time: the server may be busy and answer the next one."""


def may_pass(error: Exception) -> bool:
    """Whether another try may succeed; never after a wrong key or a refused login."""
    return isinstance(error, (PassingError, TooLateError))


def is_local(error: Exception) -> bool:
    """Whether the reason is on this machine and not the host."""
    return isinstance(error, (LocalError, SshConfigError))


def jump_host_error(error: Exception, why: str) -> UnreachableError:
    """The error of a host behind a jump host that failed with `error`."""
    if may_pass(error):
        return LocalPassingError(why) if is_local(error) else PassingError(why)
    return LocalError(why) if is_local(error) else UnreachableError(why)


def resolution_error(error: socket.gaierror) -> UnreachableError:
    if error.errno == socket.EAI_AGAIN:
        return LocalPassingError("name not found: the name server did not answer")
    return LocalError("name not found")


LOCAL = (errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE)
"""Errors of connect(2) due to this machine: a wrong BindAddress, its firewall, its limits."""


def connect_error(error: OSError) -> UnreachableError:
    """The error for a failed connect(2)."""
    kind = LocalPassingError if error.errno in LOCAL else PassingError
    return kind(error_text(error))


NO_MATCH = "kex error : no match for method "
"""The beginning of libssh's message about algorithms; both lists follow."""


def handshake_failure(error: Exception) -> UnreachableError:
    text = str(error)
    if text.startswith(NO_MATCH):
        return UnreachableError(f"no common algorithm: {text.removeprefix(NO_MATCH)}")
    return PassingError(f"connection closed during key exchange: {text}")


def error_text(error: OSError) -> str:
    """The reason of a failed connect(2), or of a broken connection."""
    return ERRNO.get(error.errno or 0) or error.strerror or "connection lost"
