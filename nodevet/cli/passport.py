"""`nodevet passport`: what an RMA asks of a part."""

from pathlib import Path

import click

from nodevet.cli.common import completing, recalled, sheets
from nodevet.cli.common.command import Command
from nodevet.cli.common.display import Display, display_options


@click.command(
    "passport",
    cls=Command,
    group="History",
    order=5,
    examples=(
        (
            "For the vendor: no host is named",
            "nodevet passport GPU-d5b35768 --redact --format html:gpu.html",
        ),
        ("For your own ticket", "nodevet passport 1659993044202 --format markdown"),
    ),
)
@click.argument("part", shell_complete=completing.recorded_parts)
@recalled.redact
@sheets.formats()
@recalled.store
@display_options()
def command(
    part: str,
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """Write what an RMA asks of a PART.

    Its identity, places, faults and repairs, and its counters before and after each move.
    PART is a UUID, GUID or serial number, or the beginning of one. Counters stand as they were when
    it came to a place and when it was last read there.

    \b
    Exit codes:
      0  written
      2  usage or configuration error, no such part, or nothing recorded
    """
    from nodevet.report.parts.history_story import passport_sheet
    from nodevet.run.recall import open_history
    from nodevet.run.story import passport_found

    with open_history(store) as history:
        found = passport_found(history, part)
        found = recalled.redacted(found, history) if redact else found
    sheets.show(found, passport_sheet(found, recalled.clock()), form, display)
