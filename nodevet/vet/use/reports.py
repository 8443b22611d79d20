"""The reports and the saved evidence of a run: tried out before it, and never half written."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

import msgspec

from nodevet.base.errors import UserError
from nodevet.base.outputs import file_errors, open_to_append, replace, try_out
from nodevet.model import Host, HostReport
from nodevet.model.run import Run
from nodevet.vet import formats as run_formats
from nodevet.vet.findings.counted import counted, with_counts
from nodevet.vet.use.listener import VetListener, Waiting

if TYPE_CHECKING:
    from nodevet.fleet import Visit

MOST_LINES = 10  # of what could not be written


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


class Reports:
    """The reports of a run, each `NAME:FILE`, and the folder in which its evidence is saved.

    A file that cannot be written is given up and costs nothing else; `finish` names it. Raises
    FileError if a file or the folder cannot be written from the start.
    """

    def __init__(
        self,
        formats: Sequence[str],
        save: Path | None = None,
        known: Sequence[str] = (),
        *,
        everything: bool = False,
    ) -> None:
        """`known`: the formats to choose from; without them, all those of a run. `everything`:
        include what passed, in formats that can leave it out."""
        self.sinks = tuple(_sinks(formats, known))
        self.everything = everything
        self._save = save
        self._lost: dict[str, str] = {}
        if save is not None:
            with file_errors(save):
                save.mkdir(parents=True, exist_ok=True)
            try_out(save / "evidence")

    @property
    def saves(self) -> bool:
        """Whether the evidence is saved."""
        return self._save is not None

    def keep(self, visit: "Visit", host: Host) -> None:
        """Save the evidence of a host, if that was asked for."""
        if self._save is None:
            return
        from nodevet.vet.use.saved import keep  # a run that saves nothing does not pay for it

        try:
            keep(visit, host, self._save)
        except OSError as error:
            self._give_up(f"{self._save}: the evidence of {visit.host}", error)

    @contextmanager
    def streams(self) -> Iterator["Streams"]:
        """The streamed reports, open while the run goes on. A run that is refused before it began
        leaves a file as it was."""
        files: dict[Sink, IO[str]] = {}
        try:
            for sink in self.sinks:
                if sink.streamed:
                    files[sink] = self.open_stream(sink)
            yield Streams(files, self)
        finally:
            for sink, file in files.items():
                if sink.file is not None:
                    with suppress(OSError):
                        file.close()

    def open_stream(self, sink: Sink) -> IO[str]:
        """A file to write line after line. Raises FileError."""
        path = _file(sink)
        with file_errors(path):
            return TextIOWrapper(open_to_append(path), encoding="utf-8")

    def replace(self, path: Path, text: str | Iterable[str]) -> bool:
        """Write a file whole or not at all. False if that fails; `finish` names it then."""
        try:
            replace(path, text)
        except OSError as error:
            self._give_up(str(path), error)
            return False
        return True

    def finish(self, run: Run, *, streamed: bool = True, shadow: bool = False) -> None:
        """Write the reports except those that were `streamed`; files first.

        `shadow`: include checks that are only tried out, in formats that can leave these out.
        Raises UserError that names every file that could not be written since the run began.
        """
        self.write(
            lambda sink: run_formats.pieces(
                sink.format, run, everything=self.everything, shadow=shadow, **self.look(sink)
            ),
            [sink for sink in self.sinks if not (streamed and sink.streamed)],
        )

    def look(self, sink: Sink) -> dict[str, Any]:
        """Colour, width and so on for one report; for a file, none."""
        return {}

    def write(self, render: Callable[[Sink], str | Iterable[str]], sinks: Sequence[Sink]) -> None:
        """Write what `render` makes for each of the `sinks`, whole or in pieces. Raises as `finish`
        does."""
        for sink in sinks:
            self.replace(_file(sink), render(sink))
        self.refuse_lost()

    def refuse_lost(self) -> None:
        """Raises UserError if something could not be written."""
        if self._lost:
            lines = [f"{what}: cannot be written: {why}" for what, why in self._lost.items()]
            rest = len(lines) - MOST_LINES + 1
            few = len(lines) < MOST_LINES
            texts = lines if few else [*lines[: MOST_LINES - 1], f"and {rest} more"]
            raise UserError("\n".join(texts))

    def give_up(self, sink: Sink, error: OSError) -> None:
        """Remember that a report is lost."""
        self._give_up(str(sink), error)

    def _give_up(self, what: str, error: OSError) -> None:
        self._lost.setdefault(what, error.strerror or str(error))

    def code(self, run: Run) -> int:
        """The exit code of a command that writes these reports."""
        return run.exit_code


class Streams:
    """Open streamed reports; one that fails is given up and the others go on."""

    def __init__(self, files: dict[Sink, IO[str]], reports: Reports) -> None:
        self._files = files
        self._reports = reports
        self._begun: set[Sink] = set()

    def __bool__(self) -> bool:
        return bool(self._files)

    @property
    def at_terminal(self) -> bool:
        return any(file.isatty() for file in self._files.values())

    def counts(self, form: ModuleType) -> bool:
        """Whether findings that passed are only counted in this format."""
        return run_formats.counts(form) and not self._reports.everything

    def emit(self, lines: Callable[[ModuleType], str]) -> None:
        """Write to each what `lines` makes with the module of its format, and flush it."""
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
                self._reports.give_up(sink, error)


class Streaming(VetListener):
    """Writes each host's report to the streams as it comes in, and tells another listener."""

    def __init__(self, streams: Streams, inner: VetListener) -> None:
        self._streams = streams
        self._inner = inner

    def began(self, run: Run, hosts: tuple[str, ...]) -> None:
        self._streams.emit(lambda format: str(format.head(run, hosts=list(hosts))))
        self._inner.began(run, hosts)

    def visiting(self) -> None:
        self._inner.visiting()

    def took(self, host: HostReport) -> None:
        counts = self._streams.counts
        self._streams.emit(lambda form: str(form.line(counted(host) if counts(form) else host)))

    def took_packed(self, host: str, whole: Callable[[], HostReport]) -> None:
        if self._streams:  # without one there is no need to unpack it
            self.took(whole())

    def advanced(self, host: str) -> None:
        self._inner.advanced(host)

    def waiting(self, waiting: Waiting) -> None:
        self._inner.waiting(waiting)

    def visited(self) -> None:
        self._inner.visited()

    def ended(self, run: Run) -> None:
        counts = self._streams.counts
        self._streams.emit(lambda form: str(form.tail(with_counts(run) if counts(form) else run)))
        self._inner.ended(run)

    def warned(self, text: str) -> None:
        self._inner.warned(text)

    def noted(self, text: str) -> None:
        self._inner.noted(text)


def _sinks(words: Sequence[str], known: Sequence[str]) -> Iterator[Sink]:
    seen: set[Path | None] = set()
    for word in words:
        name, colon, path = word.partition(":")
        if colon and not path:
            raise UserError(f"--format {word} needs a file after the colon")
        run_formats.require(name, known)
        sink = Sink(name, Path(path) if path else None)
        place = sink.file.resolve() if sink.file else None
        if place in seen:
            hint = "" if place else "; give one a file: html:FILE"
            raise UserError(f"two formats for {sink}{hint}")
        seen.add(place)
        if sink.file:
            try_out(sink.file)
        yield sink


def _file(sink: Sink) -> Path:
    if sink.file is None:
        raise UserError(f"the report {sink.format} needs a file")
    return sink.file


def distinct(path: Path, sinks: Iterable[Sink]) -> None:
    """Raises UserError if a report goes to the same file."""
    if any(sink.file and sink.file.resolve() == path.resolve() for sink in sinks):
        raise UserError(f"{path}: a report goes there too; give each a file")
