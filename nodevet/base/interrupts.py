"""Hold interrupts back: while files are written, or while a program starts."""

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """From `hold` to `release` the first interrupt waits; a second one acts at once.

    The shell and the kernel both report a lost terminal; that counts as one interrupt.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._waiting: int | None = None

    def hold(self) -> None:
        """Does nothing in another thread than the main one, which alone is interrupted."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            if number not in self._before and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)

    def release(self) -> None:
        """Carry out what waits, if anything does: raises KeyboardInterrupt."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            signal.raise_signal(waiting)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._waiting is None:
            self._waiting = number
        elif number != signal.SIGHUP:
            self.release()
