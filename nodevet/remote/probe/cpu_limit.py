"""Ends work on hostile data that takes too much CPU time: a pattern, a dump of a job."""

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn, TypeVar

    T = TypeVar("T")


class TooLongError(ValueError):
    """The work took too long; the message says which."""


def within(seconds: float, why: str, function: "Callable[..., T]", *arguments: object) -> "T":
    """The function's result. Raises TooLongError with `why` after so many seconds of CPU time of
    this process, which a busy machine does not use up, and what the function raises.

    Python looks for signals between two steps, and re within a search."""

    def late(number: int, frame: object) -> "NoReturn":
        raise TooLongError(why)

    previous = signal.signal(signal.SIGVTALRM, late)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        return function(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
