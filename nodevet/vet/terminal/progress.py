"""The progress of a run on the terminal: a bar and streamed reports."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodevet.cli.display import Display, display_of
from nodevet.cli.speech import say, silence
from nodevet.model.run import Run
from nodevet.vet.terminal.output import Sinks
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.reports import Streaming

if TYPE_CHECKING:
    from rich.progress import Progress

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def watched(total: int, sinks: Sinks | None = None) -> Iterator[VetListener]:
    """Streams to the sinks, and draws a bar, while so many hosts are vetted."""
    shown = sinks or Sinks((), display=display_of())
    with shown.streams() as streams, Watcher(shown, total, holds=sinks is not None) as watcher:
        yield Streaming(streams, watcher)


class Watcher(VetListener):
    """Draws a bar, and prints what went wrong. With `holds` an interrupt after the last visit waits
    until the sinks have written their files."""

    def __init__(self, sinks: Sinks, total: int = 0, *, holds: bool = True) -> None:
        self._sinks = sinks
        self._bar = Bar(total, sinks.display, streaming=sinks.at_terminal)
        self._holds = holds

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def began(self, run: Run, hosts: tuple[str, ...]) -> None:
        self._bar.total = len(hosts)

    def visiting(self) -> None:
        self._bar.start()

    def advanced(self, host: str) -> None:
        self._bar.advance()

    def visited(self) -> None:
        if self._holds:
            self._sinks.interrupts.hold()

    def ended(self, run: Run) -> None:
        self._bar.stop()

    def warned(self, text: str) -> None:
        say(text)

    def noted(self, text: str) -> None:
        if not self._sinks.display.quiet:
            say(text)


class Bar:
    """A bar on standard error if that is a terminal, and nothing else is `streaming` to one."""

    def __init__(self, total: int, display: Display, *, streaming: bool = False) -> None:
        self.total = total
        self._colour = display.err.colour
        self._shown = sys.stderr.isatty() and not streaming and not display.quiet
        self._drawn: Progress | None = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        drawn, self._drawn = self._drawn, None
        if drawn is not None:
            with _whole():
                _while_written(drawn.stop)

    def start(self) -> None:
        if not self._shown or self.total < 2:
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (TextColumn("vetting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console = Console(stderr=True, no_color=not self._colour)
        drawn = Progress(*columns, console=console, transient=True)
        drawn.add_task("", total=self.total)
        with _whole():
            if _while_written(drawn.start):  # rich cannot stop what did not start
                self._drawn = drawn

    def advance(self) -> None:
        if self._shown and (drawn := self._drawn) is not None:
            self._shown = _while_written(lambda: drawn.advance(drawn.task_ids[0]))


@contextmanager
def _whole() -> Iterator[None]:
    """An interrupt waits: rich cannot stop what it has not started to the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _while_written(draw: Callable[[], object]) -> bool:
    """Draw on standard error. False if it is closed; nothing is drawn after that."""
    try:
        draw()
    except OSError:
        silence(sys.stderr)
        return False
    return True
