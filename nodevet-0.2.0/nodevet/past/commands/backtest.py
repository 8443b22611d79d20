"""`nodevet backtest`: recorded nights under another baseline."""

from pathlib import Path

import click

from nodevet.base.project import Project
from nodevet.cli import completing, options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command, WholeNumber
from nodevet.past import terminal as recalled
from nodevet.vet import options as vetting


@click.command(
    "backtest",
    cls=Command,
    group="History",
    order=7,
    examples=(
        (
            "What tomorrow's baseline would have found in the last 90 nights",
            "nodevet backtest -b tomorrow.yaml",
        ),
        (
            "One check, on one rack, as an HTML page",
            "nodevet backtest -b tomorrow.yaml --check row_remapping --limit @rack1 \\\n"
            "  --format html:rule.html",
        ),
    ),
)
@options.hosts
@options.baselines
@click.option(
    "--nights",
    type=WholeNumber(),
    default=90,
    show_default=True,
    help="Days before the last run.",
)
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="CHECK",
    shell_complete=completing.checks_and_baselines,
    help="Only this check; may be repeated.",
)
@click.option("--series", metavar="NAME", help="Runs of this sweep.  [default: the last sweep's]")
@click.option(
    "--within",
    type=WholeNumber(),
    default=14,
    show_default=True,
    help="Count an alarm as right if a failure follows within N days.",
)
@vetting.fail_on
@sheets.formats()
@recalled.store
@options.project
@display_options()
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    names: tuple[str, ...],
    nights: int,
    checks: tuple[str, ...],
    series: str | None,
    within: int,
    fail_on: str,
    form: tuple[str, Path | None],
    store: str | None,
    project: Project,
    display: Display,
) -> None:
    """Show what a baseline would have found in recorded nights.

    nodevet judges the recorded evidence of every visit again, by -b, and compares the result with
    the recorded findings. It visits no node and records nothing.

    An alarm is a row of nights in which a host fails a check that it passed at the time. A failure
    is a critical finding that began then, an Xid, a lost GPU, or a host that did not answer.
    GPU-hours run from a visit that fails to the next one that is judged. Nights without evidence
    (pruned) count as not judged, never as passed.

    \b
    Exit codes:
      0  answered, whatever was found
      2  usage or configuration error, or nothing is recorded
    """
    from nodevet.model import Severity
    from nodevet.past.sheets.backtest import backtest_sheet
    from nodevet.past.use.backtest import Nights, run_backtest
    from nodevet.vet.terminal.from_run import tell_killed
    from nodevet.vet.terminal.progress import watched
    from nodevet.vet.use.context import open_context
    from nodevet.vet.use.stores import open_history, read_from
    from nodevet.vet.use.targets import Targets

    with open_history(store):  # which says what is wrong with it
        pass
    asked = Nights(
        store=read_from(store),
        days=nights,
        series=series,
        checks=frozenset(checks) if checks else None,
        targets=Targets(names=targets, inventories=inventories, limit=limit),
        fail_on=Severity(fail_on),
        within_days=within,
    )
    context = open_context(project, names)
    found = run_backtest(asked, context, killed=tell_killed, watched=watched)
    sheets.show(found, backtest_sheet(found, recalled.clock()), form, display)
