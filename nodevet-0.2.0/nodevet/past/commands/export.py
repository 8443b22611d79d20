"""`nodevet export`: the history for notebooks and databases."""

from pathlib import Path

import click

from nodevet.cli import options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.past import terminal as recalled


@click.command(
    "export",
    cls=Command,
    group="History",
    order=9,
    examples=(
        ("Everything, as Parquet", "nodevet export --parquet history/"),
        ("Only this month", "nodevet export --parquet history/ --since 2026-11-01"),
    ),
)
@click.option(
    "--parquet",
    "folder",
    required=True,
    type=options.FolderParam(),
    metavar="DIR",
    help="Folder for the files; an earlier export there is replaced.",
)
@click.option("--since", metavar="DAY", help="Only runs from this day on: 2026-11-20.")
@recalled.redact
@sheets.formats(("table", "json"))
@recalled.store
@display_options()
def command(
    folder: Path,
    since: str | None,
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """Write the history as Parquet files.

    One file for each table: runs, visits, findings (a row for as long as one stayed the same),
    parts, places and counters (a row for each change). Times are UTC. Without --redact the files
    name hosts. Only you can read them (mode 0600).
    It needs pyarrow: pip install 'nodevet[parquet]'.

    \b
    Exit codes:
      0  written
      2  usage or configuration error, no pyarrow, or nothing has been recorded
    """
    from nodevet.past.sheets.runs import export_sheet
    from nodevet.past.use.export import export
    from nodevet.vet.use.stores import open_history

    with open_history(store, fixes=True) as history:
        found = export(history, folder, after=since, redact=redact)
    sheets.show(found, export_sheet(found.folder, found.rows), form, display)
