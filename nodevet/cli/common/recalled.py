"""What the commands of the history share: which store is read, and how what is found is shown."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nodevet.cli.common import completing, options
from nodevet.cli.common.display import Display
from nodevet.cli.common.speech import say, tell
from nodevet.sheet import FORMATS

if TYPE_CHECKING:
    from nodevet.sheet.clock import Clock
    from nodevet.sheet.model import Sheet
    from nodevet.store import Store

EXITS = """\
    \b
    Exit codes:
      0  found and shown
      2  usage or configuration error, or nothing has been recorded
"""
Found = TypeVar("Found")
store = options.store_option("The history to read: sqlite:///PATH or postgresql://USER@HOST/DB.")

redact = click.option(
    "--redact",
    is_flag=True,
    help="For what leaves the site: no host names, no files, no owners; ids of parts stay.",
)


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
        if name not in self.shown:
            from nodevet.problems import did_you_mean

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


def clock() -> "Clock":
    """When and where the reader is."""
    from nodevet.sheet.clock import Clock

    return Clock(now=now())


def now() -> datetime:
    return datetime.now().astimezone()


def redacted(found: Found, history: "Store") -> Found:
    """What was found, as it may leave the site."""
    from nodevet.history.redaction import Redactor

    return Redactor(history.hosts()).document(found)


def show(document: Any, sheet: "Sheet", form: tuple[str, Path | None], display: Display) -> None:
    """Write the document, or its sheet, in a format, to standard output or to a file."""
    import msgspec

    from nodevet.run.files import replace, tried
    from nodevet.sheet import render

    name, file = form
    told = {"kind": sheet.kind, **msgspec.to_builtins(document)}
    if file is None:
        tell(
            render(name, told, lambda: sheet, colour=display.colour, width=display.width), nl=False
        )
        return
    with tried(file):
        replace(file, render(name, told, lambda: sheet))
    say(f"written: {name} {file}")
