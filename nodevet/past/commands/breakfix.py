"""`nodevet history breakfix`: repair records for ai-cloud-validation."""

from pathlib import Path

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display
from nodevet.cli.help import Command
from nodevet.past import completing as recorded
from nodevet.past import terminal as recalled


@click.command(
    "breakfix",
    cls=Command,
    group="History",
    order=4,
    examples=(
        ("The repairs of three hosts", "nodevet history breakfix gpu[001-003]"),
        ("For ai-cloud-validation", "nodevet history breakfix --format json:breakfix.json"),
    ),
)
@click.argument("hosts", metavar="[HOSTS]...", nargs=-1, shell_complete=recorded.hosts)
@recalled.answer
def command(
    hosts: tuple[str, ...],
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """Write break-fix records of HOSTS: repair history, and identifiers of parts.

    The JSON output has the fields that NVIDIA's ai-cloud-validation reads for BFX02-03 (`records`)
    and BFX03-01 (`machines`). HOSTS are nodesets; the default is all hosts in the store.

    \b
    Exit codes:
      0  written
      2  usage or configuration error, no such host, or nothing recorded
    """
    from nodevet.past.sheets.breakfix import break_fix_sheet
    from nodevet.past.use.breakfix import find_break_fix
    from nodevet.vet.use.stores import open_history

    clock = recalled.clock()
    with open_history(store, fixes=True) as history:
        records = (
            find_break_fix(history, hosts, lambda story: recalled.redact_document(story, history))
            if redact
            else find_break_fix(history, hosts)
        )
    sheets.show(records, break_fix_sheet(records, clock), form, display)
