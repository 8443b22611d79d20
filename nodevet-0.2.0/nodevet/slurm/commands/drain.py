"""`nodevet slurm drain`: drain what fails in a run."""

from pathlib import Path
from typing import Any

import click

from nodevet.cli.display import Display
from nodevet.cli.help import Command, WholeNumber
from nodevet.slurm.options import from_run


class Share(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A share of all nodes: `5%`."""

    name = "percent"

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> float:
        number = str(value).removesuffix("%")
        if not str(value).endswith("%") or not number.isdecimal() or int(number) > 100:
            self.fail(f"{value!r} is not a share of all nodes, such as 5%", param, ctx)
        return int(number) / 100


@click.command(
    "drain",
    cls=Command,
    order=4,
    examples=(
        ("After a sweep", "nodevet slurm drain --from last"),
        ("What would be drained", "nodevet slurm drain --from last.json --dry-run"),
    ),
)
@from_run
@click.option(
    "--max-drain",
    type=Share(),
    default="5%",
    show_default=True,
    metavar="PERCENT",
    help="Of all nodes, nodevet has at most this share drained, earlier runs included; at least "
    "one.",
)
@click.option(
    "--keep",
    type=WholeNumber(),
    default=1,
    show_default=True,
    metavar="N",
    help="Drain no node if fewer than N of one of its partitions would stay in service.",
)
def command(
    source: str,
    max_drain: float,
    keep: int,
    dry_run: bool,
    max_age: float,
    store: str | None,
    form: tuple[str, Path | None],
    display: Display,
) -> None:
    """Drain the nodes that fail in a run. Run it where scontrol may drain nodes.

    Running jobs finish normally. A node that someone else drained keeps its reason; `Prolog error`,
    which Slurm itself gives, is replaced by what it hides.

    \b
    Exit codes:
      0  every node that fails is drained, or has the reason of someone else
      1  a limit left a node in service, or Slurm refused
      2  usage or configuration error, no such run, or Slurm's controller does not answer
    """
    from nodevet.slurm.decide import DrainLimits, plan_drain
    from nodevet.slurm.scontrol import read_nodes
    from nodevet.slurm.terminal import finish, run_of
    from nodevet.slurm.use import act
    from nodevet.slurm.use.tag import reason_tag

    run, _ = run_of(source, store, max_age)
    plans = plan_drain(run, read_nodes(), DrainLimits(max_drain, keep))
    done = plans if dry_run else act.drain(plans, reason_tag())
    finish(done, "drained", run.id, dry_run, form, display)
