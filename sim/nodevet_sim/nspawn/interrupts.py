"""Hold interrupts while a fleet starts."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def hold() -> Iterator[Callable[[], None]]:
    """Hold interrupts until the end, and raise KeyboardInterrupt then if one came.

    Yields a function that raises it earlier. Only for the main thread.
    """
    came: list[int] = []

    def act() -> None:
        if came:
            raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    try:
        for number in heeded:
            signal.signal(number, lambda received, _: came.append(received))
        yield act
    finally:
        for number, old in heeded.items():
            signal.signal(number, old)
        act()
