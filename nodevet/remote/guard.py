"""Children that do not outlive whoever started them: the kernel kills them, and an alarm does."""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38


def find_prctl() -> "Callable[..., int] | None":
    """prctl(2), or None on a Python without ctypes: then only the alarm guards a child."""
    try:
        import ctypes

        return ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None


def kill_with_parent(prctl: "Callable[..., int] | None") -> None:
    """Have the kernel kill this process when its parent is gone."""
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def die_with_parent(prctl: "Callable[..., int] | None", parent: int, seconds: float) -> None:
    """Have the kernel kill this process when its parent is gone, or after so many seconds."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    kill_with_parent(prctl)
    if os.getppid() != parent:
        os._exit(1)
