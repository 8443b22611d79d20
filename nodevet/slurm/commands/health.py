"""`nodevet slurm health`: for HealthCheckProgram."""

import time

import click

from nodevet.base.last_verdict import clocks
from nodevet.base.project import Project
from nodevet.cli import options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command, WholeNumber
from nodevet.slurm.options import hook
from nodevet.vet.options import fail_on as fail_on_option

MOST_JITTER = 30.0  # seconds; slurmd kills a health check after 60


@click.command(
    "health",
    cls=Command,
    order=1,
    examples=(
        ("What HealthCheckProgram runs", "nodevet slurm health -b /etc/nodevet/site.yaml"),
        (
            "Spread over ten seconds; drain only for critical failures",
            "nodevet slurm health -b /etc/nodevet/site.yaml --jitter 10s --fail-on critical",
        ),
    ),
)
@hook
@fail_on_option
@click.option(
    "--looks",
    type=WholeNumber(),
    default=3,
    show_default=True,
    metavar="N",
    help="Drain the node if something is unknown in N looks in a row.",
)
@click.option(
    "--jitter",
    type=Duration(most=MOST_JITTER),
    default=0.0,
    help="Wait up to this long before reading the machine; each node waits for a different time.",
)
@options.project
def command(
    names: tuple[str, ...],
    max_age: float,
    fail_on: str,
    looks: int,
    jitter: float,
    project: Project,
) -> None:
    """Drain this node if it fails its baseline. For HealthCheckProgram of slurm.conf.

    nodevet drains the node at once if a check fails, or if checks are unknown in --looks looks in a
    row. It does not drain a node that has just booted, or whose unknown findings pass by
    themselves. While jobs run on the node, during its maintenance, and inside a job, nodevet does
    not drain it; the next health check after that does. It never changes the reason of someone
    else. If the node passed in this boot less than --max-age ago, health repeats that result
    without reading the node.

    \b
    Exit codes:
      0  pass
      1  something fails
      2  usage or configuration error: nothing is drained
      3  something was unknown in --looks looks in a row
      75 look again: nothing is drained yet
    """
    import sys

    from nodevet.cli.speech import say, tell
    from nodevet.model import Severity
    from nodevet.slurm import kept
    from nodevet.slurm.use.health import health
    from nodevet.slurm.use.look import node_name, share_of, this_machine
    from nodevet.slurm.use.tag import reason_tag
    from nodevet.vet.findings.totals import summary
    from nodevet.vet.use.context import keeping_parser, open_context
    from nodevet.vet.use.keep_verdict import Keeping
    from nodevet.vet.use.looks import Looks

    time.sleep(jitter * share_of(node_name()))
    began, words, hosts = clocks(), kept.shared_words(sys.argv[1:]), this_machine()
    keeping = Keeping(words, max_age, hosts, began)
    context = open_context(project, names, keeping_parser())
    counted = Looks(words, hosts, looks)
    done = health(hosts, context, Severity(fail_on), counted, node_name(), say, reason_tag())
    text = f"{summary(done.run)}\n"
    tell(text, nl=False)
    if done.code == 0 and done.is_done:
        why = keeping.keep(done.run, text, context, project.folder, dated=True)
        if why:
            say(why)
    click.get_current_context().exit(done.code)
