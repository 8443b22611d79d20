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
            "Spread over ten seconds; serious failures alone drain",
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
    help="Drain on what is unknown after N looks in a row.",
)
@click.option(
    "--jitter",
    type=Duration(most=MOST_JITTER),
    default=0.0,
    help="Wait up to this long before reading the machine; each node has a time of its own.",
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

    A failure drains the node at once, something unknown after --looks in a row. A node that has
    just booted, or whose unknown findings pass by themselves, is not drained. While jobs run on it,
    during its maintenance, and inside a job, nodevet does not drain it; the next look after that
    does. The reason of someone else stays. If the node passed in this boot less than --max-age ago,
    health repeats that result without a look.

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
    from nodevet.vet.findings.fold import summary
    from nodevet.vet.use.context import open_context
    from nodevet.vet.use.keep_verdict import Keeping
    from nodevet.vet.use.looks import Looks

    time.sleep(jitter * share_of(node_name()))
    began, words, hosts = clocks(), kept.shared_words(sys.argv[1:]), this_machine()
    keeping = Keeping(words, max_age, hosts, began)
    context = open_context(project, names)
    counted = Looks(words, hosts, looks)
    done = health(hosts, context, Severity(fail_on), counted, node_name(), say, reason_tag())
    text = f"{summary(done.run)}\n"
    tell(text, nl=False)
    if done.code == 0 and done.is_done:
        why = keeping.keep(done.run, text, context, project.folder, dated=True)
        if why:
            say(why)
    click.get_current_context().exit(done.code)
