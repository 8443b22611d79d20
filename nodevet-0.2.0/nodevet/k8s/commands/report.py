"""`nodevet k8s report`: write verdicts to nodes as conditions."""

import time
from pathlib import Path

import click

from nodevet.cli import completing
from nodevet.cli.display import Display
from nodevet.cli.help import Command
from nodevet.k8s.options import finish, shown


@click.command(
    "report",
    cls=Command,
    order=1,
    examples=(
        ("After a sweep", "nodevet k8s report last.json --max-age 2h"),
        (
            "In a pod on the node",
            'nodevet k8s report /run/nodevet/run.json --node "$NODE_NAME"',
        ),
    ),
)
@click.argument(
    "run", shell_complete=completing.saved, type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--node",
    "name",
    default="",
    metavar="NAME",
    help="Name of the node in Kubernetes. Only for a run of one host.",
)
@shown
def command(
    run: Path,
    name: str,
    dry_run: bool,
    max_age: float,
    form: tuple[str, Path | None],
    display: Display,
) -> None:
    """Write the verdicts of RUN to the nodes, as the condition NodevetPassed.

    RUN is a file that check, gate or sweep wrote with --format json:FILE. True: the node passed.
    False: a check fails at or above the run's --fail-on. Unknown: nodevet could not judge all
    checks, or the verdict is too old or belongs to another boot or machine. nodevet adds an event
    for each check that newly fails.

    It needs the verbs get on nodes, patch on nodes/status, and create on events.

    \b
    Exit codes:
      0  every visited host has this verdict or a later one
      1  could not write to a node, or Kubernetes has no such node
      2  usage or configuration error, or the API server does not answer
    """
    from nodevet.inventory.cluster import connect
    from nodevet.k8s.use.report import Reporter, report
    from nodevet.vet.terminal.saved_reports import read_run

    read = read_run(run, most=max_age)
    reporter = Reporter(connect(), time.time(), max_age, dry_run)
    finish(report(reporter, read, name), form, display, dry=dry_run)
