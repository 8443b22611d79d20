"""`nodevet trend`: a check or a value from run to run."""

from pathlib import Path

import click

from nodevet.base.project import Project
from nodevet.cli import completing, options, sheets
from nodevet.cli.display import Display
from nodevet.cli.help import Command, WholeNumber
from nodevet.past import completing as recorded
from nodevet.past import terminal as recalled


@click.command(
    "trend",
    cls=Command,
    group="History",
    order=5,
    examples=(
        ("How many hosts fail a check, run by run", "nodevet trend power_limit"),
        (
            "A chart of the GPU temperatures of the fleet",
            "nodevet trend gpu.gpus[].temperature_gpu_c --format html:heat.html",
        ),
        (
            "A counter of one host, GPU by GPU",
            "nodevet trend gpu.gpus[].pcie_replay_counter --host gpu001",
        ),
    ),
)
@click.argument("what", metavar="CHECK|FIELD", shell_complete=completing.checks)
@click.option("--host", shell_complete=recorded.hosts, help="Only this host, part by part.")
@click.option("--series", metavar="NAME", help="Runs of this sweep.  [default: the last sweep's]")
@click.option(
    "-n", "most", type=WholeNumber(), default=30, show_default=True, help="Show at most N runs."
)
@recalled.answer
@options.project
def command(
    what: str,
    host: str | None,
    series: str | None,
    most: int,
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    project: Project,
    display: Display,
) -> None:
    """Show a CHECK or a FIELD of the evidence from run to run.

    For a check: how many hosts failed it in each run. For a field, `section.list[].field`: its
    minimum, median and maximum over all hosts, or with --host each part; for a text, how often each
    value was read.

    \b
    Exit codes:
      0  shown
      2  usage or configuration error, no such check or field, or nothing recorded
    """
    from nodevet.base.errors import UserError
    from nodevet.past.redaction import is_identifying
    from nodevet.past.sheets.trend import check_sheet, field_sheet
    from nodevet.past.trend import CheckTrend, FieldTrend
    from nodevet.past.use.trend import find_trend
    from nodevet.vet.use.context import open_project
    from nodevet.vet.use.stores import open_history

    catalog, _ = open_project(project)
    with open_history(store) as history:
        values = find_trend(history, what, catalog, host=host, name=series, most=most)
        if redact and isinstance(values, FieldTrend) and is_identifying(values.field):
            raise UserError(f"--redact: {what} identifies a machine or its parts")
        values = recalled.redact_document(values, history) if redact else values
    clock = recalled.clock()
    if isinstance(values, CheckTrend):
        sheets.show(values, check_sheet(values, clock), form, display)
    else:
        sheets.show(values, field_sheet(values, clock), form, display)
