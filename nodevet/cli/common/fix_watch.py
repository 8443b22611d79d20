"""How a run of fixes goes on, on standard error: live on a terminal, else line by line.

What the run tells is put into a queue, and a thread of its own writes: a terminal that is stopped,
a pipe that nothing reads from, and what is gone, hold up no host and end nothing.
"""

import os
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Protocol

from nodevet.cli.common import fix_board, speech
from nodevet.cli.common.display import Display, display_of
from nodevet.cli.common.fix_board import Board
from nodevet.cli.common.speech import say_at_once, silence
from nodevet.remedy.events import Event, HostBegun, HostEnded
from nodevet.run.listener import FixListener

if TYPE_CHECKING:
    from rich.live import Live

EVERY = 30.0  # seconds between two lines of a log about what goes on
REFRESH = 0.5  # seconds
ROWS = 8  # hosts in hand that a terminal shows


class FixWatcher(FixListener):
    """Between `with` and its end everything is written by a thread; all of it, by the end."""

    def __init__(self, display: Display | None = None, every: float = EVERY) -> None:
        self._display = display or display_of()
        self._every = every
        self._told: queue.SimpleQueue[tuple[float, Event | str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="progress", daemon=True)

    def __enter__(self) -> "FixWatcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._told.put(None)
        self._thread.join()

    # A SimpleQueue is put to from any thread, and from the handler of a signal.

    def note(self, text: str) -> None:
        self._told.put((time.monotonic(), text))

    def note_in_signal(self, text: str) -> None:
        if self._thread.is_alive():
            self.note(text)
        else:
            say_at_once(text)

    def heard(self, event: Event) -> None:
        self._told.put((time.monotonic(), event))

    # --- the thread ---------------------------------------------------------------------------

    def _write(self) -> None:
        writer: Writer = _Nowhere()
        try:
            writer = _writer(Board(time.monotonic()), self._display, self._every)
            while self._take(writer):
                writer.tick(time.monotonic())
        except Exception as error:  # whatever it is, the run goes on
            _lost(error)
            while self._told.get() is not None:
                pass
        try:
            writer.close()
        except Exception as error:
            _lost(error)

    def _take(self, writer: "Writer") -> bool:
        """What was told until now; False at the end."""
        try:
            told = self._told.get(timeout=writer.pause)
        except queue.Empty:
            return True
        while told is not None:
            writer.take(told[1], told[0])
            try:
                told = self._told.get_nowait()
            except queue.Empty:
                return True
        return False


def _lost(error: Exception) -> None:
    if isinstance(error, OSError):  # the terminal, or the pipe's reader, is gone
        silence(sys.stderr)


class Writer(Protocol):
    pause: float  # the longest between two ticks, in seconds

    def take(self, told: Event | str, now: float) -> None: ...

    def tick(self, now: float) -> None: ...

    def close(self) -> None: ...


def _writer(board: Board, display: Display, every: float) -> Writer:
    if display.err.width is not None and os.environ.get("TERM") not in (None, "", "dumb"):
        return _Screen(board, colour=display.err.colour)
    return _Log(board, every)


class _Nowhere:
    pause = 1.0

    def take(self, told: Event | str, now: float) -> None:
        pass

    def tick(self, now: float) -> None:
        pass

    def close(self) -> None:
        pass


class _Log:
    """A line for each host that begins or ends, and now and then one about those in hand."""

    def __init__(self, board: Board, every: float) -> None:
        self.pause = min(1.0, every)
        self._board, self._every = board, every
        self._last = time.monotonic()

    def take(self, told: Event | str, now: float) -> None:
        if isinstance(told, str):
            self._line(f"nodevet: {told}")
            return
        self._board.take(told, now)
        if isinstance(told, HostBegun):
            self._line(fix_board.began(told))
        elif isinstance(told, HostEnded):
            self._line(fix_board.ended(told))

    def tick(self, now: float) -> None:
        if self._board.waiting and now - self._last >= self._every:
            self._last = now
            self._line(self._board.pulse(now))

    def close(self) -> None:
        pass

    def _line(self, text: str) -> None:
        if not speech.tell(text, err=True):
            raise BrokenPipeError(text)


class _Screen:
    """A line for each host that ended; below them, drawn again and again, the run as it is."""

    pause = REFRESH

    def __init__(self, board: Board, *, colour: bool) -> None:
        from rich.console import Console

        self._board, self._colour = board, colour
        self._console = Console(
            stderr=True,
            no_color=not colour,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live: Live | None = None

    def take(self, told: Event | str, now: float) -> None:
        if isinstance(told, str):
            self._print(f"nodevet: {told}")
            return
        self._board.take(told, now)
        if isinstance(told, HostEnded):
            good = told.result.outcome.good
            self._print(fix_board.ended(told), "" if good or not self._colour else "yellow")

    def tick(self, now: float) -> None:
        from rich.live import Live
        from rich.text import Text

        if not self._board.waiting:
            self.close()
            return
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
            self._console.show_cursor(True)  # a controller that is killed would leave none
        rows = max(1, min(ROWS, self._console.height - 2))
        lines = [self._board.head(now), *(f"  {row}" for row in self._board.rows(now, rows))]
        style = "dim" if self._colour else ""
        told = Text("\n".join(lines), style=style, no_wrap=True, overflow="ellipsis")
        self._live.update(told, refresh=True)

    def close(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style or None, soft_wrap=True)
