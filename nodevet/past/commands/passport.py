"""`nodevet passport`: what an RMA asks of a part."""

from pathlib import Path

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.past import completing as recorded
from nodevet.past import terminal as recalled


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
@click.argument("part", shell_complete=recorded.parts)
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
    from nodevet.past.sheets.story import passport_sheet
    from nodevet.past.use.story import passport_found
    from nodevet.vet.use.stores import open_history

    with open_history(store) as history:
        found = passport_found(history, part)
        found = recalled.redacted(found, history) if redact else found
    sheets.show(found, passport_sheet(found, recalled.clock()), form, display)
