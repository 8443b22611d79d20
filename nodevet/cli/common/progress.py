"""How a run goes on, on the terminal: a bar, streamed reports, a line per host that ended."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodevet.cli.common import speech
from nodevet.cli.common.output import Sinks, Streams
from nodevet.cli.common.speech import say, say_at_once, silence
from nodevet.model import HostReport, Run
from nodevet.run.listener import FixListener, VetListener

if TYPE_CHECKING:
    from nodevet.result import HostResult

Advance = Callable[[HostReport], None]


@contextmanager
def watched(total: int, sinks: Sinks | None = None) -> Iterator[VetListener]:
    """Streams to the sinks, and draws a bar, while so many hosts are vetted."""
    with (sinks or Sinks(())).streams() as streams, _bar(total, streams) as advance:
        yield Watcher(streams, advance)


class Watcher(VetListener):
    """Writes each report to the streams as it comes in."""

    def __init__(self, streams: Streams, advance: Advance) -> None:
        self._streams = streams
        self._advance = advance

    def began(self, run: Run, hosts: tuple[str, ...]) -> None:
        self._streams.emit(lambda format: str(format.head(run, hosts=list(hosts))))

    def took(self, host: HostReport) -> None:
        self._streams.emit(lambda format: str(format.line(host)))

    def advanced(self, host: HostReport) -> None:
        self._advance(host)

    def ended(self, run: Run) -> None:
        self._streams.emit(lambda format: str(format.tail(run)))


class Speaker(FixListener):
    """Says on standard error what a run of fixes tells."""

    def note(self, text: str) -> None:
        say(text)

    def note_in_signal(self, text: str) -> None:
        say_at_once(text)

    def ended(self, host: "HostResult") -> None:
        from nodevet.report.parts.fixes import line

        speech.tell(line(host), err=True)


@contextmanager
def _bar(total: int, streams: Streams) -> Iterator[Advance]:
    """A bar on standard error if that is a terminal, and no report is streamed to one."""
    if streams.at_terminal or not sys.stderr.isatty() or total == 1:
        yield lambda host: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("vetting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=total)
    shown = _while_written(bar.start)

    def advance(host: HostReport) -> None:
        nonlocal shown
        shown = shown and _while_written(lambda: bar.advance(task))

    try:
        yield advance
    finally:
        _while_written(bar.stop)


def _while_written(draw: Callable[[], object]) -> bool:
    """Draw on standard error; False, and never again, if that is gone."""
    try:
        draw()
    except OSError:
        silence(sys.stderr)
        return False
    return True
