"""Ends work on hostile data that takes too much CPU time: a pattern, a dump of a job."""

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, NoReturn, TypeVar

    T = TypeVar("T")


AGAIN = 0.05  # seconds of CPU time between two signals


class TooLongError(ValueError):
    """The work took too long; the message says which."""


def within(seconds: float, why: str, function: "Callable[..., T]", *arguments: object) -> "T":
    """The function's result. Raises TooLongError with `why` after so many seconds of CPU time of
    this process, which a busy machine does not use up, and what the function raises.

    Python looks for signals between two steps, and re within a search. It drops an error that is
    raised in a finalizer or a callback of the garbage collector, so the signal comes again."""

    def late(number: int, frame: object) -> "NoReturn":
        raise TooLongError(why)

    previous = signal.signal(signal.SIGVTALRM, late)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN)
        return function(*arguments)
    finally:
        while signal.getsignal(signal.SIGVTALRM) is late:
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                signal.signal(signal.SIGVTALRM, previous)
            except TooLongError:  # the function has ended
                pass
