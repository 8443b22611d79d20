"""`nodevet slurm hook`: for --drain-hook."""

import click

from nodevet.cli.help import Command


@click.command(
    "hook",
    cls=Command,
    order=6,
    examples=(
        (
            "Plan fixes that need drained nodes",
            'nodevet plan -i @slurmpart:gpu --max-risk reboot --drain-hook "nodevet slurm hook"',
        ),
    ),
)
@click.argument("host")
@click.option(
    "--do",
    "what",
    type=click.Choice(["drain", "undrain", "reboot"]),
    envvar="NODEVET_HOOK",
    required=True,
    help="What to do with the node; apply and rollback set NODEVET_HOOK.",
)
@click.option(
    "--plan",
    envvar="NODEVET_PLAN",
    default="",
    metavar="ID",
    help="Id of the plan that needs the drain; apply and rollback set NODEVET_PLAN, and "
    "NODEVET_RUN for their run of it. By hand, ID-RUN names one run.",
)
@click.option(
    "--reservation",
    default="",
    metavar="NAME",
    help="Take only nodes that this maintenance reservation holds now. Without it, the hook takes "
    "no node that is in maintenance.",
)
def command(host: str, what: str, plan: str, reservation: str) -> None:
    """Drain HOST for a plan, and give it back. For --drain-hook of plan and apply.

    It drains the node and waits until its jobs have ended. A node that nodevet had drained before
    stays drained afterwards; meanwhile its reason names the plan, too. The hook refuses a node that
    someone else drained, or that is in maintenance, and does not change it. If slurm.conf has a
    RebootProgram, Slurm reboots the node, which stays drained meanwhile.

    \b
    Exit codes:
      0  done
      2  refused, or Slurm's controller does not answer
    """
    import os

    from nodevet.base.plan_marks import mark_of
    from nodevet.cli.speech import say, tell
    from nodevet.slurm.use import hook

    mark = mark_of(plan, os.environ.get("NODEVET_RUN", ""))

    def offer(words: str) -> None:
        tell(f"nodevet-hook: {words}")

    if what == "drain":
        checks = os.environ.get("NODEVET_CHECKS", "").split(",")
        if os.environ.get("NODEVET_LOCKED") == "no":
            hook.require_no_other_plan(host, mark)
        hook.drain(host, mark, list(filter(None, checks)), offer, say, reservation)
    elif what == "reboot":
        hook.reboot(host, reservation)
    else:
        hook.undrain(host, mark, lambda text: offer(f"unchanged {text}"), say)
