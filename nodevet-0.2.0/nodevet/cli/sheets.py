"""`--format` of every command that shows a sheet, and how the sheet is written."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodevet.cli import completing
from nodevet.cli.display import Display, Screen
from nodevet.cli.speech import say, tell
from nodevet.sheet import FORMATS

if TYPE_CHECKING:
    from nodevet.sheet.model import Sheet

OLD_NAMES = {"text": "table"}


def formats(shown: Sequence[str] = FORMATS) -> Callable[[Any], Any]:
    """`--format NAME[:FILE]`."""
    return click.option(
        "--format",
        "form",
        metavar="NAME[:FILE]",
        default="table",
        show_default=True,
        type=FormParam(shown),
        help=f"{', '.join(shown[:-1])} or {shown[-1]}; to standard output, or to a file.",
    )


class FormParam(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """One of some formats, maybe with a file: `html:gpu.html`."""

    name = "form"

    def __init__(self, shown: Sequence[str]) -> None:
        self.shown = tuple(shown)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Path | None]:
        if isinstance(value, tuple):
            return value
        name, colon, file = str(value).partition(":")
        name = OLD_NAMES.get(name, name)
        if name not in self.shown:
            from nodevet.base.problems import did_you_mean

            there = f"there are {', '.join(self.shown)}"
            hint = did_you_mean(name, self.shown, there)
            self.fail(f"no format is named {name!r}; {hint}", param, ctx)
        if colon and not file:
            self.fail(f"{value!r} names no file", param, ctx)
        return name, Path(file) if file else None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> completing.Items:
        return completing.among(self.shown, incomplete)


def show(document: Any, sheet: "Sheet", form: tuple[str, Path | None], display: Display) -> None:
    """Write the document, or its sheet, in a format, to standard output or to a file. JSON names
    the kind of the document first."""
    import msgspec

    named_document = {"kind": sheet.kind, **msgspec.to_builtins(document)}
    show_bare(named_document, lambda: sheet, form, display)


def show_bare(
    document: Any, sheet: "Callable[[], Sheet]", form: tuple[str, Path | None], display: Display
) -> None:
    """Like `show`, for a document whose JSON names no kind."""
    from nodevet.sheet import render

    name, file = form
    screen = Screen() if file else display.out
    write(render(name, document, sheet, colour=screen.colour, width=screen.width), form)


def write(text: str, form: tuple[str, Path | None]) -> None:
    """Write rendered text. Raises FileError, and BrokenPipeError if nobody reads standard output
    any more, so that the output is lost."""
    from nodevet.base.outputs import file_errors, replace

    name, file = form
    if file is None:
        if not tell(text, nl=False):
            raise BrokenPipeError
        return
    with file_errors(file):
        replace(file, text)
    say(f"written: {name} {file}")
