"""Progress on standard error: live on a terminal, else line by line.

Events go into a queue, and a thread of its own writes them: a stopped terminal, a full pipe or a
closed stream neither delays nor ends the work.
"""

import os
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nodevet.cli import speech
from nodevet.cli.display import Display
from nodevet.cli.speech import say_at_once, silence

if TYPE_CHECKING:
    from rich.live import Live as RichLive

EVERY = 30.0  # seconds between two lines of a log about what goes on
REFRESH = 0.5  # seconds
ROWS = 8  # lines below the head that a terminal shows


class Said(NamedTuple):
    """A line that stays."""

    text: str
    good: bool = True


class Board(Protocol):
    """The state of the events so far, as lines. Times are seconds of `time.monotonic`."""

    def take(self, event: Any, now: float) -> None: ...

    def event_line(self, event: Any, *, terminal: bool) -> Said | None:
        """A permanent line for an event, or None."""

    @property
    def waiting(self) -> bool:
        """Whether something goes on that a line could be about."""

    def head(self, now: float) -> str: ...

    def rows(self, now: float, most: int) -> list[str]:
        """The rows below the head on a terminal."""

    def pulse(self, now: float) -> str:
        """All of it on one line, for a log."""


class Live:
    """Between `with` and its end everything is written by a thread; all of it, by the end."""

    def __init__(self, board: Board, display: Display, every: float = EVERY) -> None:
        self._board, self._display, self._every = board, display, every
        self._told: queue.SimpleQueue[tuple[float, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="progress", daemon=True)

    def __enter__(self) -> "Live":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the reader until an interrupt; then the rest is lost."""
        self._told.put(None)
        try:
            self._thread.join()
        except KeyboardInterrupt:
            speech.abandon_errors()
            raise

    def tell(self, event: Any) -> None:
        """An event, or a note that is a text. From any thread, and from the handler of a signal:
        a SimpleQueue allows both."""
        self._told.put((time.monotonic(), event))

    def tell_in_signal(self, text: str) -> None:
        if self._thread.is_alive():
            self.tell(text)
        else:
            say_at_once(text)

    def _write(self) -> None:
        writer: _Writer = _Nowhere()
        try:
            writer = self._writer()
            while self._take(writer):
                writer.tick(time.monotonic())
        except Exception as error:  # whatever it is, the run goes on
            _silence_if_lost(error)
            while self._told.get() is not None:
                pass
        try:
            writer.close()
        except Exception as error:
            _silence_if_lost(error)

    def _writer(self) -> "_Writer":
        screen = self._display.err
        if screen.width is not None and os.environ.get("TERM") not in (None, "", "dumb"):
            return _Terminal(self._board, colour=screen.colour)
        return _Log(self._board, self._every)

    def _take(self, writer: "_Writer") -> bool:
        """Take the events that wait; False at the end."""
        try:
            event = self._told.get(timeout=writer.pause)
        except queue.Empty:
            return True
        while event is not None:
            writer.take(event[1], event[0])
            try:
                event = self._told.get_nowait()
            except queue.Empty:
                return True
        return False


def _silence_if_lost(error: Exception) -> None:
    if isinstance(error, OSError):  # the terminal, or the pipe's reader, is gone
        silence(sys.stderr)


class _Writer(Protocol):
    pause: float  # the longest between two ticks, in seconds

    def take(self, event: Any, now: float) -> None: ...

    def tick(self, now: float) -> None: ...

    def close(self) -> None: ...


class _Nowhere:
    pause = 1.0

    def take(self, event: Any, now: float) -> None:
        pass

    def tick(self, now: float) -> None:
        pass

    def close(self) -> None:
        pass


class _Log:
    """Prints lines for events, and now and then one about the progress."""

    def __init__(self, board: Board, every: float) -> None:
        self.pause = min(1.0, every)
        self._board, self._every = board, every
        self._last = time.monotonic()

    def take(self, event: Any, now: float) -> None:
        if isinstance(event, str):
            self._line(f"nodevet: {event}")
            return
        self._board.take(event, now)
        if line := self._board.event_line(event, terminal=False):
            self._line(line.text)

    def tick(self, now: float) -> None:
        if self._board.waiting and now - self._last >= self._every:
            self._last = now
            self._line(self._board.pulse(now))

    def close(self) -> None:
        pass

    def _line(self, text: str) -> None:
        if not speech.tell(text, err=True):
            raise BrokenPipeError(text)


class _Terminal:
    """Prints lines for events, and redraws the progress below them."""

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
        self._live: RichLive | None = None

    def take(self, event: Any, now: float) -> None:
        if isinstance(event, str):
            self._print(Said(f"nodevet: {event}"))
            return
        self._board.take(event, now)
        if line := self._board.event_line(event, terminal=True):
            self._print(line)

    def tick(self, now: float) -> None:
        from rich.live import Live
        from rich.text import Text

        if not self._board.waiting:
            self.close()
            return
        if self._live is None:
            live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            live.start()
            self._live = live  # only now: rich cannot stop what did not start
            self._console.show_cursor(True)  # a process that is killed would leave none
        rows = max(1, min(ROWS, self._console.height - 2))
        lines = [self._board.head(now), *(f"  {row}" for row in self._board.rows(now, rows))]
        style = "dim" if self._colour else ""
        drawn = Text("\n".join(lines), style=style, no_wrap=True, overflow="ellipsis")
        self._live.update(drawn, refresh=True)

    def close(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def _print(self, line: Said) -> None:
        style = "" if line.good or not self._colour else "yellow"
        self._console.print(line.text, style=style or None, soft_wrap=True)
