"""`nodevet prune`: delete old evidence; findings stay."""

import json

import click

from nodevet.cli import options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.past import terminal as recalled

DAY = 86_400.0
MOST = 36_500 * DAY


@click.command(
    "prune",
    cls=Command,
    group="History",
    order=8,
    examples=(
        ("What would be deleted", "nodevet prune --dry-run"),
        (
            "Every night for a month, then one a week for half a year",
            "nodevet prune --daily 30d --weekly 182d",
        ),
    ),
)
@click.option(
    "--daily",
    type=Duration(DAY, MOST, bare=False),
    help="Keep the evidence of every visit for this long.  [default: nodevet.toml, 90d]",
)
@click.option(
    "--weekly",
    type=Duration(0, MOST, bare=False),
    help="After that, keep one visit a week for this long.  [default: nodevet.toml, 52 weeks]",
)
@click.option(
    "--monthly",
    type=Duration(0, MOST, bare=False),
    help="After that, keep one visit a month for this long.  [default: nodevet.toml, 5 years]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; change nothing.")
@options.form(("table", "json"), "For people, or for programs.")
@recalled.store
def command(
    daily: float | None,
    weekly: float | None,
    monthly: float | None,
    dry_run: bool,
    form: str,
    store: str | None,
) -> None:
    """Delete old evidence.

    Findings with their times, parts, places and counters stay, and so does the last evidence of
    each host. A night without evidence can no longer be judged by another baseline, and `trend`
    cannot show its fields.

    \b
    Exit codes:
      0  done, or nothing to do
      2  usage or configuration error, or nothing has been recorded
    """
    from nodevet.past.use.prune import policy_of, prune
    from nodevet.vet.use.stores import open_history

    policy = policy_of(daily, weekly, monthly)
    with open_history(store) as history:
        pruned = prune(history, policy, recalled.local_now().timestamp(), dry_run=dry_run)
    click.echo(json.dumps(pruned.document) if form == "json" else pruned.words)
