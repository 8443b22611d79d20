"""How a run goes on, on the terminal: a bar, streamed reports, a line per host that ended."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodevet.cli.display import Display, display_of
from nodevet.cli.interrupts import Interrupts
from nodevet.cli.speech import silence
from nodevet.model import HostReport, Run
from nodevet.vet.terminal.output import Sinks, Streams
from nodevet.vet.use.listener import VetListener

if TYPE_CHECKING:
    from rich.progress import Progress

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def watched(total: int, sinks: Sinks | None = None) -> Iterator[VetListener]:
    """Streams to the sinks, and draws a bar, while so many hosts are vetted."""
    held = sinks.interrupts if sinks else None
    sinks = sinks or Sinks((), display=display_of())
    with sinks.streams() as streams, Bar(total, streams, sinks.display) as bar:
        yield Watcher(streams, bar, held)


class Watcher(VetListener):
    """Writes each report to the streams as it comes in."""

    def __init__(self, streams: Streams, bar: "Bar", interrupts: Interrupts | None = None) -> None:
        self._streams = streams
        self._bar = bar
        self._interrupts = interrupts

    def began(self, run: Run, hosts: tuple[str, ...]) -> None:
        self._streams.emit(lambda format: str(format.head(run, hosts=list(hosts))))

    def visiting(self) -> None:
        self._bar.start()

    def took(self, host: HostReport) -> None:
        self._streams.emit(lambda format: str(format.line(host)))

    def took_packed(self, whole: Callable[[], HostReport]) -> None:
        if self._streams:  # without one there is no need to unpack it
            self.took(whole())

    def advanced(self, host: str) -> None:
        self._bar.advance()

    def visited(self) -> None:
        if self._interrupts is not None:
            self._interrupts.hold()

    def ended(self, run: Run) -> None:
        self._streams.emit(lambda format: str(format.tail(run)))


class Bar:
    """A bar on standard error if that is a terminal, and no report is streamed to one."""

    def __init__(self, total: int, streams: Streams, display: Display) -> None:
        self._total = total
        self._colour = display.err.colour
        self._shown = sys.stderr.isatty() and not streams.at_terminal and total > 1
        self._shown = self._shown and not display.quiet
        self._drawn: Progress | None = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn is not None:
            with _whole():
                _while_written(self._drawn.stop)

    def start(self) -> None:
        if not self._shown:
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
        drawn.add_task("", total=self._total)
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
    """Draw on standard error; False, and never again, if that is gone."""
    try:
        draw()
    except OSError:
        silence(sys.stderr)
        return False
    return True
