"""`nodevet slurm resume`: resume the nodes that a run proves to be repaired."""

from pathlib import Path

import click

from nodevet.cli.display import Display
from nodevet.cli.help import Command
from nodevet.slurm.options import from_run


@click.command(
    "resume",
    cls=Command,
    order=5,
    examples=(("After a sweep", "nodevet slurm resume --from last"),),
)
@from_run
@click.option(
    "--plan",
    "of_plans",
    multiple=True,
    metavar="ID",
    help="Also resume nodes that apply drained for this plan and has not given back.",
)
def command(
    source: str,
    dry_run: bool,
    max_age: float,
    of_plans: tuple[str, ...],
    store: str | None,
    form: tuple[str, Path | None],
    display: Display,
) -> None:
    """Resume nodes that nodevet drained and a later run found repaired.

    Every check that the reason names must be ok, and nothing may fail. If nodevet cannot tell
    whether it is still the same machine (it was replaced, or its own health check drained it),
    nothing may be unknown either. Nodes that others drained stay drained. So do nodes that apply
    drained for a plan, until apply or --plan gives them back.

    \b
    Exit codes:
      0  done, also if nodes stay drained because they are not repaired
      1  Slurm refused
      2  usage or configuration error, no such run, or Slurm's controller does not answer
    """
    from nodevet.base.errors import UserError
    from nodevet.slurm.decide import plan_resume
    from nodevet.slurm.scontrol import clock_ahead, read_nodes
    from nodevet.slurm.terminal import finish, run_of
    from nodevet.slurm.use import act

    nodes = read_nodes()
    own = [
        (node.own_reason.run, node.name)
        for node in nodes.values()
        if node.is_drained and node.own_reason
    ]
    run, machines = run_of(source, store, max_age, own)
    if run.only or run.skip:
        text = "a run with --only or --skip cannot prove that a node is repaired"
        raise UserError(f"--from {source}: {text}")
    plans = plan_resume(run, nodes, machines, of_plans, clock_ahead() if own else 0.0)
    finish(plans if dry_run else act.resume(plans), "resumed", run.id, dry_run, form, display)
