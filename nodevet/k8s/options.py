"""What `report` and `expire` have in common: how the answer is shown, and how it ends."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from nodevet.cli import options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.durations import Duration

if TYPE_CHECKING:
    from nodevet.k8s.condition import WrittenCondition

shown = options.apply(
    click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing."),
    click.option(
        "--max-age",
        type=Duration(bare=False),
        default="30m",
        show_default=True,
        help="A verdict that is older counts as Unknown.",
    ),
    sheets.formats(("table", "markdown", "html", "json")),
    display_options(),
)


def finish(
    written: "Iterable[WrittenCondition]",
    form: tuple[str, Path | None],
    display: Display,
    *,
    dry: bool,
) -> NoReturn:
    """Write, show what was written, and end with the exit code."""
    from nodevet.k8s.answer import answer
    from nodevet.k8s.sheet import conditions_sheet

    done = list(written)
    sheets.show(answer(done, dry=dry), conditions_sheet(done, dry=dry), form, display)
    click.get_current_context().exit(int(any(each.is_short for each in done)))
