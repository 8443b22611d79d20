"""`nodevet k8s drained`: a command for --drain-hook."""

import click

from nodevet.cli.durations import Duration
from nodevet.cli.help import Command


@click.command(
    "drained",
    cls=Command,
    order=3,
    examples=(
        (
            "Plan fixes that need drained nodes",
            'nodevet plan -i k8s:pool=gpu --max-risk reboot --drain-hook "nodevet k8s drained"',
        ),
    ),
)
@click.argument("host")
@click.option(
    "--do",
    "what",
    type=click.Choice(["drain", "undrain"]),
    envvar="NODEVET_HOOK",
    required=True,
    help="Drain or undrain the node; apply and rollback set NODEVET_HOOK.",
)
@click.option(
    "--plan",
    envvar="NODEVET_PLAN",
    default="",
    metavar="ID",
    help="Id of the plan that needs the drain; apply and rollback set NODEVET_PLAN, and "
    "NODEVET_RUN for their run of it. By hand, ID-RUN names one run.",
)
@click.option("--force", "bare", is_flag=True, help="Also evict pods that no controller restarts.")
@click.option(
    "--delete-emptydir-data",
    "empty_dir",
    is_flag=True,
    help="Also evict pods with an emptyDir, whose data is lost.",
)
@click.option(
    "--cordoned",
    is_flag=True,
    help="Also drain a node that someone else cordoned; it stays cordoned afterwards.",
)
@click.option(
    "--timeout",
    type=Duration(1),
    default="25m",
    show_default=True,
    help="How long the pods may take to leave. Give less than --drain-timeout of apply, after "
    "which apply kills the hook.",
)
def command(
    host: str, what: str, plan: str, bare: bool, empty_dir: bool, cordoned: bool, timeout: float
) -> None:
    """Drain HOST for a plan, or uncordon it afterwards. For --drain-hook of plan.

    It cordons the node, writes the ids of the plan and its run into the annotation nodevet.io/plan,
    evicts the pods, and waits until they are gone. If a PodDisruptionBudget protects a pod, it
    tries again every 5 seconds. Pods of DaemonSets and mirror pods stay. It refuses a node that
    someone else cordoned, and a node that a Slurm operator manages.

    It needs the verbs get and patch on nodes, list on pods, and create on pods/eviction.

    \b
    Exit codes:
      0  done
      2  refused, the pods did not leave in time, or the API server does not answer
    """
    import os

    from nodevet.base.plan_marks import mark_of
    from nodevet.cli.speech import say, tell
    from nodevet.inventory.cluster import connect
    from nodevet.k8s.pods import Allowed
    from nodevet.k8s.use import drained

    mark = mark_of(plan, os.environ.get("NODEVET_RUN", ""))

    def offer(words: str) -> None:
        tell(f"nodevet-hook: {words}")

    cluster = connect()
    if what == "drain":
        limits = drained.DrainRules(Allowed(bare, empty_dir), cordoned, timeout)
        drained.drain(cluster, host, mark, limits, offer, say)
    else:
        drained.undrain(cluster, host, mark, lambda text: offer(f"unchanged {text}"))
