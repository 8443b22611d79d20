"""`nodevet k8s expire`: set old verdicts to Unknown."""

import time
from pathlib import Path

import click

from nodevet.cli.display import Display
from nodevet.cli.help import Command
from nodevet.k8s.options import finish, shown


@click.command(
    "expire",
    cls=Command,
    order=2,
    examples=(
        (
            "In a CronJob",
            "nodevet k8s expire -l nvidia.com/gpu.present=true --max-age 30m",
        ),
    ),
)
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="LABELS",
    help="Only nodes with these labels, as in kubectl.  [default: all nodes]",
)
@shown
def command(
    selector: str,
    dry_run: bool,
    max_age: float,
    form: tuple[str, Path | None],
    display: Display,
) -> None:
    """Set NodevetPassed to Unknown on nodes whose verdict is too old or missing.

    Run it regularly: otherwise, if the pod that vets a node dies, its last verdict stays for ever.
    It also sets a pass to Unknown if the node has booted since.

    It needs the verbs list and get on nodes, and patch on nodes/status.

    \b
    Exit codes:
      0  done
      1  could not write to a node
      2  usage or configuration error, or the API server does not answer
    """
    from nodevet.inventory.cluster import connect
    from nodevet.k8s.use.report import Reporter, expire

    reporter = Reporter(connect(), time.time(), max_age, dry_run)
    finish(expire(reporter, selector), form, display, dry=dry_run)
