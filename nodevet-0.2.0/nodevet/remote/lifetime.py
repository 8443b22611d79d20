"""When a process ends early: its parent has exited, or nobody reads its answer any more."""

import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38


def find_prctl() -> "Callable[..., int] | None":
    """prctl(2); None on a Python without ctypes, where only the alarm guards a child."""
    try:
        import ctypes

        return ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None


def kill_with_parent(prctl: "Callable[..., int] | None") -> None:
    """Have the kernel kill this process when its parent exits."""
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def die_with_parent(prctl: "Callable[..., int] | None", parent: int, seconds: float) -> None:
    """Have the kernel kill this process when its parent exits, or after `seconds`."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    kill_with_parent(prctl)
    if os.getppid() != parent:
        os._exit(1)


class NobodyReads(Exception):  # noqa: N818 - a state, and not an error
    """The reader of the answer is gone."""


def is_gone(event: int) -> bool:
    """Whether an event of poll(2) means that the other end of a pipe or socket is closed."""
    return bool(event & (select.POLLERR | select.POLLHUP)) and not event & select.POLLNVAL


def pause(seconds: float, request: "dict[str, Any]") -> None:
    """Wait. Raises NobodyReads once the reader of the descriptor `answer_to` is gone."""
    if "answer_to" not in request:
        time.sleep(seconds)
        return
    end = time.monotonic() + seconds
    poll = select.poll()
    poll.register(request["answer_to"], 0)
    if any(is_gone(event) for _, event in poll.poll(seconds * 1000)):
        raise NobodyReads
    time.sleep(max(0.0, end - time.monotonic()))  # it is closed here
