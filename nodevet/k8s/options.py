"""Options, output and exit code that `report` and `expire` share."""

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
    click.option("--dry-run", is_flag=True, help="Show what nodevet would write; write nothing."),
    click.option(
        "--max-age",
        type=Duration(bare=False),
        default="30m",
        show_default=True,
        help="Count an older verdict as Unknown.",
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
    """Write the conditions, show them, and exit."""
    from nodevet.k8s.answer import answer
    from nodevet.k8s.sheet import conditions_sheet

    done = list(written)
    sheets.show(answer(done, dry=dry), conditions_sheet(done, dry=dry), form, display)
    click.get_current_context().exit(int(any(condition.is_short for condition in done)))
