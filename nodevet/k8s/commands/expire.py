"""`nodevet k8s expire`: distrust old verdicts."""

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
            "What the CronJob runs",
            "nodevet k8s expire -l nvidia.com/gpu.present=true --max-age 30m",
        ),
    ),
)
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="LABELS",
    help="Only nodes with these labels, as for kubectl.  [default: all nodes]",
)
@shown
def command(
    selector: str,
    dry_run: bool,
    max_age: float,
    form: tuple[str, Path | None],
    display: Display,
) -> None:
    """Set NodevetPassed to Unknown where the verdict is too old, or missing.

    The pod that vets a node may be dead, and its last verdict would stand for ever. A pass does not
    outlive a boot of the node. It needs the verbs list and get on nodes, and patch on nodes/status.

    \b
    Exit codes:
      0  done
      1  a node could not be written
      2  usage or configuration error, or the API server does not answer
    """
    from nodevet.inventory.cluster import connect
    from nodevet.k8s.use.report import Reporter, expire

    reporter = Reporter(connect(), time.time(), max_age, dry_run)
    finish(expire(reporter, selector), form, display, dry=dry_run)
