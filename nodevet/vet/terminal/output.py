"""Reports to files, and one to standard output."""

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nodevet.base.interrupts import Interrupts
from nodevet.cli.display import Display, Screen
from nodevet.cli.speech import needs_output, say, silence, write
from nodevet.model.run import Run
from nodevet.sheet import render
from nodevet.vet import formats as run_formats
from nodevet.vet.use.reports import Reports, Sink

if TYPE_CHECKING:
    from nodevet.sheet.model import Sheet


class Sinks(Reports):
    """The reports of `--format`, the table if none is named, and the evidence of `--save`."""

    def __init__(
        self,
        formats: Sequence[str],
        save: Path | None = None,
        display: Display | None = None,
        known: Sequence[str] = (),
        *,
        everything: bool = False,
        remembers: bool = False,
    ) -> None:
        """`known`, `everything`: see Reports. `remembers`: keep in `shown` what goes to standard
        output."""
        super().__init__(formats or ["table"], save, known, everything=everything)
        self.display = display or Display()
        if (known and self.printed) or self.has_verdict_in_text:
            needs_output()
        self._remembers = remembers
        self.shown = ""
        self.interrupts = Interrupts()

    @property
    def printed(self) -> str | None:
        """The format on standard output."""
        return next((sink.format for sink in self.sinks if sink.file is None), None)

    @property
    def has_verdict_in_text(self) -> bool:
        """Whether the format on standard output wants exit code 0 for every verdict."""
        return bool(self.printed) and run_formats.has_verdict_in_text(str(self.printed))

    @property
    def at_terminal(self) -> bool:
        """Whether a streamed report goes to a terminal."""
        return any(_at_terminal(sink) for sink in self.sinks if sink.streamed)

    def open_stream(self, sink: Sink) -> IO[str]:
        return super().open_stream(sink) if sink.file else sys.stdout

    def finish(self, run: Run, *, streamed: bool = True, shadow: bool = False) -> None:
        """As Reports; prints the totals and the files if every report went to a file."""
        from nodevet.vet.findings.totals import summary

        super().finish(run, streamed=streamed, shadow=shadow)
        if not self.printed:
            written = ", ".join(f"{sink.format} {sink.file}" for sink in self.sinks)
            say(f"{summary(run)} · written: {written}")

    def look(self, sink: Sink) -> dict[str, Any]:
        if sink.file is not None:
            return {}
        display = self.display
        return {
            "colour": display.colour,
            "width": display.width,
            "quiet": display.quiet,
            "advice": display.advice,
        }

    def write(self, render: Callable[[Sink], str | Iterable[str]], sinks: Sequence[Sink]) -> None:
        """As Reports. An interrupt that was held since the run ended is carried out once the files
        are written."""
        try:
            for sink in sinks:
                if sink.file is not None:
                    self.replace(sink.file, render(sink))
        finally:
            self.interrupts.release()
        for sink in sinks:
            if sink.file is None:
                text = render(sink)
                try:
                    self._print((text,) if isinstance(text, str) else text)
                except OSError as error:
                    self.give_up(sink, error)
        self.refuse_lost()

    def _print(self, pieces: Iterable[str]) -> None:
        """Raises OSError."""
        ending, self.shown = "", ""
        for piece in pieces:
            write(sys.stdout, piece)
            ending = piece or ending
            self.shown += piece if self._remembers else ""
        if not ending.endswith("\n"):
            write(sys.stdout, "\n")

    def give_up(self, sink: Sink, error: OSError) -> None:
        if sink.file is None:
            silence(sys.stdout)
        super().give_up(sink, error)

    def show(self, document: Any, sheet: "Callable[[], Sheet]") -> None:
        """Write the document, or its sheet, in each format. Raises as `finish` does."""

        def rendered(sink: Sink) -> str:
            screen = Screen() if sink.file else self.display.out
            return render(sink.format, document, sheet, colour=screen.colour, width=screen.width)

        self.write(rendered, self.sinks)

    def code(self, run: Run) -> int:
        """The exit code: that of the format on standard output, if it has one of its own."""
        return run_formats.exit_code(self.printed, run) if self.printed else run.exit_code


def _at_terminal(sink: Sink) -> bool:
    return sys.stdout.isatty() if sink.file is None else sink.file.is_char_device()
