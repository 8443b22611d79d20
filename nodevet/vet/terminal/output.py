"""Where a run goes: reports and saved evidence, tried out before it and never half written."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec

from nodevet.base.errors import UserError
from nodevet.base.outputs import open_to_append, replace, tried, try_out
from nodevet.cli.display import Display, Screen
from nodevet.cli.interrupts import Interrupts
from nodevet.cli.speech import needs_output, say, silence
from nodevet.model import Host, Run
from nodevet.sheet import render
from nodevet.vet import formats as run_formats
from nodevet.vet.use.saved import keep

if TYPE_CHECKING:
    from nodevet.fleet import Visit
    from nodevet.sheet.model import Sheet


class Sink(msgspec.Struct, frozen=True):
    """One `--format NAME[:FILE]`; without a file it goes to standard output."""

    format: str
    file: Path | None

    @property
    def streamed(self) -> bool:
        """Whether it is written host by host, while the run goes on."""
        return run_formats.streamed(self.format)

    def __str__(self) -> str:
        return str(self.file or "standard output")


class Sinks:
    """The reports of `--format` and the evidence of `--save`.

    What cannot be written while the run goes on, or after it, is given up and costs
    nothing else; `finish` says so. Raises FileError if that can be told before.
    """

    def __init__(
        self,
        formats: Sequence[str],
        save: Path | None = None,
        display: Display | None = None,
        known: Sequence[str] = (),
        *,
        remembers: bool = False,
    ) -> None:
        """`known`: the formats to choose from; all those of a run, if none are named.
        `remembers`: `shown` is asked for once it was printed."""
        self.display = display or Display()
        self.sinks = tuple(_sinks(formats or ["table"], known))
        if known and any(sink.file is None for sink in self.sinks):
            needs_output()
        self._save = save
        self._lost: dict[str, str] = {}
        self._remembers = remembers
        self.shown = ""  # what went to standard output last
        self.interrupts = Interrupts()
        if save is not None:
            with tried(save):
                save.mkdir(parents=True, exist_ok=True)
            try_out(save / "evidence")

    def keep(self, visit: "Visit", host: Host) -> None:
        """Save the evidence of a host, if that was asked for."""
        if self._save is None:
            return
        try:
            keep(visit, host, self._save)
        except OSError as error:
            self._give_up(f"{self._save}: the evidence of {visit.host}", error)

    @contextmanager
    def streams(self) -> Iterator["Streams"]:
        """The streamed sinks, open while the run goes on. A run that is refused before it began
        leaves what a file held."""
        files: dict[Sink, IO[str]] = {}
        try:
            for sink in self.sinks:
                if sink.streamed:
                    files[sink] = _line_file(sink.file) if sink.file else sys.stdout
            yield Streams(files, self)
        finally:
            for file in files.values():
                if file is not sys.stdout:
                    with suppress(OSError):
                        file.close()

    def replace(self, path: Path, text: str | Iterable[str]) -> None:
        """Write a file whole or not at all; `finish` says when it could not be."""
        try:
            replace(path, text)
        except OSError as error:
            self._give_up(str(path), error)

    def finish(
        self,
        run: Run,
        *,
        streamed: bool = True,
        everything: bool = False,
        shadow: bool = False,
    ) -> None:
        """Write the reports but those that were `streamed`; files first.

        `everything`: what passed too, `shadow`: what is tried out, in formats that can leave
        it out.
        Raises UserError that names whatever could not be written, since the run began.
        """
        self.write(
            lambda sink: run_formats.pieces(
                sink.format, run, everything=everything, shadow=shadow, **self._shown(sink)
            ),
            [sink for sink in self.sinks if not (streamed and sink.streamed)],
        )
        self._close(run)

    def _close(self, run: Run) -> None:
        """If every report went to a file: the totals, and what was written where."""
        from nodevet.vet.findings.fold import summary

        if all(sink.file for sink in self.sinks):
            written = ", ".join(f"{sink.format} {sink.file}" for sink in self.sinks)
            say(f"{summary(run)} · written: {written}")

    def _shown(self, sink: Sink) -> dict[str, Any]:
        """How a sink is drawn: on standard output as the display has it."""
        if sink.file is not None:
            return {}
        shown = self.display
        return {
            "colour": shown.colour,
            "width": shown.width,
            "quiet": shown.quiet,
            "advice": shown.advice,
        }

    def write(self, render: Callable[[Sink], str | Iterable[str]], sinks: Sequence[Sink]) -> None:
        """Write what `render` makes for each of the `sinks`, whole or in pieces. Raises as `finish`
        does.

        An interrupt that was held since the run ended is carried out once the files are written.
        """
        try:
            for sink in sinks:
                if sink.file is not None:
                    self.replace(sink.file, render(sink))
        finally:
            self.interrupts.release()
        for sink in sinks:
            if sink.file is not None:
                continue
            made = render(sink)
            try:
                self._show((made,) if isinstance(made, str) else made)
            except OSError as error:
                self.give_up(sink, error)
        if self._lost:
            lines = [f"{what}: cannot be written: {why}" for what, why in self._lost.items()]
            shown = lines if len(lines) < 10 else [*lines[:9], f"and {len(lines) - 9} more"]
            raise UserError("\n".join(shown))

    def _show(self, pieces: Iterable[str]) -> None:
        """Print the pieces. Raises OSError."""
        ending, self.shown = "", ""
        for piece in pieces:
            click.echo(piece, nl=False)
            ending = piece or ending
            self.shown += piece if self._remembers else ""
        if not ending.endswith("\n"):
            click.echo()

    def give_up(self, sink: Sink, error: OSError) -> None:
        """Remember that a sink is lost."""
        if sink.file is None:
            silence(sys.stdout)
        self._give_up(str(sink), error)

    def _give_up(self, what: str, error: OSError) -> None:
        self._lost.setdefault(what, error.strerror or str(error))

    def show(self, document: Any, sheet: "Callable[[], Sheet]") -> None:
        """Write the document, or its sheet, in each format. Raises as `finish` does."""
        self.write(lambda sink: self._rendered(sink, document, sheet), self.sinks)

    def _rendered(self, sink: Sink, document: Any, sheet: "Callable[[], Sheet]") -> str:
        screen = Screen() if sink.file else self.display.out
        return render(sink.format, document, sheet, colour=screen.colour, width=screen.width)

    @property
    def printed(self) -> str | None:
        """The format on standard output."""
        return next((sink.format for sink in self.sinks if sink.file is None), None)

    def code(self, run: Run) -> int:
        """The exit code: that of the format on standard output, if it has one of its own."""
        return run_formats.exit_code(self.printed, run) if self.printed else run.exit_code


class Streams:
    """Open streamed sinks; one that fails is given up and the others go on."""

    def __init__(self, files: dict[Sink, IO[str]], output: Sinks) -> None:
        self._files = files
        self._output = output
        self._begun: set[Sink] = set()

    def __bool__(self) -> bool:
        return bool(self._files)

    @property
    def at_terminal(self) -> bool:
        return any(file.isatty() for file in self._files.values())

    def emit(self, lines: Callable[[ModuleType], str]) -> None:
        """Write to each what `lines` makes with the module of its format, and push it out."""
        for sink, file in list(self._files.items()):
            try:
                if sink not in self._begun:
                    self._begun.add(sink)
                    if sink.file is not None and sink.file.is_file():
                        file.truncate(0)
                file.write(lines(run_formats.module(sink.format)))
                file.flush()
            except OSError as error:
                del self._files[sink]
                with suppress(OSError):
                    if sink.file is not None:
                        file.close()
                self._output.give_up(sink, error)


def _sinks(words: Sequence[str], known: Sequence[str]) -> Iterator[Sink]:
    seen: set[Path | None] = set()
    for word in words:
        name, colon, path = word.partition(":")
        if colon and not path:
            raise click.UsageError(f"--format {word} needs a file after the colon")
        run_formats.require(name, known)
        sink = Sink(name, Path(path) if path else None)
        place = sink.file.resolve() if sink.file else None
        if place in seen:
            hint = "" if place else "; give one a file: html:FILE"
            raise click.UsageError(f"two formats for {sink}{hint}")
        seen.add(place)
        if sink.file:
            try_out(sink.file)
        yield sink


def _line_file(path: Path) -> IO[str]:
    """A file to write line after line. Raises FileError."""
    with tried(path):
        return TextIOWrapper(open_to_append(path), encoding="utf-8")


def distinct(path: Path, sinks: Iterable[Sink]) -> None:
    """Raises click.UsageError if a report goes to the same file."""
    if any(sink.file and sink.file.resolve() == path.resolve() for sink in sinks):
        raise click.UsageError(f"{path}: a report goes there too; give each a file")
