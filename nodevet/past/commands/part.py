"""`nodevet history part`: what a vendor asks about a part for an RMA."""

from pathlib import Path

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display
from nodevet.cli.help import Command
from nodevet.past import completing as recorded
from nodevet.past import terminal as recalled


@click.command(
    "part",
    cls=Command,
    group="History",
    order=4,
    examples=(
        (
            "For the vendor: no host is named",
            "nodevet history part GPU-d5b35768 --redact --format html:gpu.html",
        ),
        ("For your own ticket", "nodevet history part 1659993044202 --format markdown"),
    ),
)
@click.argument("part", shell_complete=recorded.parts)
@recalled.answer
def command(
    part: str,
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """Write what a vendor asks about a PART for an RMA.

    Its identity, hosts, faults and repairs, and its counters when it came to each host and when
    they were last read there. PART is a UUID, GUID or serial number, or the beginning of one.

    \b
    Exit codes:
      0  written
      2  usage or configuration error, no such part, or nothing recorded
    """
    from nodevet.past.sheets.passport import passport_sheet
    from nodevet.past.use.story import find_passport
    from nodevet.vet.use.stores import open_history

    with open_history(store) as history:
        passport = find_passport(history, part)
        passport = recalled.redact_document(passport, history) if redact else passport
    sheets.show(passport, passport_sheet(passport, recalled.clock()), form, display)
