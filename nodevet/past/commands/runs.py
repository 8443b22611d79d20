"""`nodevet runs`: the recorded runs."""

from pathlib import Path

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display
from nodevet.cli.help import Command, WholeNumber
from nodevet.past import completing as recorded
from nodevet.past import terminal as recalled


@click.command(
    "runs",
    cls=Command,
    group="History",
    order=1,
    short=True,
    examples=(
        ("The last runs: what is new, what was fixed", "nodevet runs"),
        ("One run: its hosts, what they fail and since when", "nodevet runs last"),
        ("What was applied and rolled back, and by whom", "nodevet runs --fixes"),
        ("The runs of one sweep since a day", "nodevet runs --series nightly --since 2026-11-01"),
    ),
)
@click.argument("run", required=False, shell_complete=recorded.runs)
@click.option("--series", metavar="NAME", help="Only runs of this sweep; '' for checks by hand.")
@click.option("--fixes", is_flag=True, help="List runs of fixes: apply and rollback.")
@click.option("--since", metavar="DAY", help="Only runs from this day on: 2026-11-20.")
@click.option(
    "-n", "most", type=WholeNumber(), default=20, show_default=True, help="Show at most N runs."
)
@recalled.answer
def command(
    run: str | None,
    series: str | None,
    fixes: bool,
    since: str | None,
    most: int,
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """List recorded runs, or show one RUN.

    RUN is an id or its beginning, `last`, `last~1` for the one before, or a day, 2026-11-20, for
    its last run. NEW counts findings that began in a run, FIXED those that are ok again.

    \b
    Exit codes:
      0  shown
      2  usage or configuration error, no such run, or nothing has been recorded
    """
    from nodevet.past.sheets.fixes import fix_runs_sheet
    from nodevet.past.sheets.runs import run_sheet, runs_sheet
    from nodevet.past.use.recall import find_fix_runs, find_run, find_runs
    from nodevet.vet.use.stores import open_history

    if fixes and (run or series is not None):
        raise click.UsageError("--fixes lists runs of fixes: leave out RUN and --series")
    clock = recalled.clock()
    with open_history(store, fixes=fixes) as history:
        if fixes:
            listed = find_fix_runs(history, most=most, after=since)
            listed = recalled.redact_document(listed, history) if redact else listed
            sheet = fix_runs_sheet(listed.fix_runs, listed.store, clock, more=listed.more)
            sheets.show(listed, sheet, form, display)
        elif run is None:
            runs = find_runs(history, series=series, most=most, after=since)
            runs = recalled.redact_document(runs, history) if redact else runs
            sheet = runs_sheet(runs.runs, runs.store, clock, more=runs.more)
            sheets.show(runs, sheet, form, display)
        else:
            one = find_run(history, run)
            one = recalled.redact_document(one, history) if redact else one
            shown = run_sheet(one.run, one.hosts, one.findings, one.before, clock, one.earlier)
            sheets.show(one, shown, form, display)
