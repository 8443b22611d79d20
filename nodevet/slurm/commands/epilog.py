"""`nodevet slurm epilog`: for Epilog."""

import click

from nodevet.base.project import Project
from nodevet.cli import options
from nodevet.slurm.options import JobHook


@click.command(
    "epilog",
    cls=JobHook,
    order=3,
    examples=(("What Epilog runs", "nodevet slurm epilog -b /etc/nodevet/site.yaml"),),
)
@options.baselines
@options.project
def command(names: tuple[str, ...], project: Project) -> None:
    """Check what a job left behind. For Epilog of slurm.conf; it never calls Slurm.

    It judges leftover processes, GPU memory that was not freed, and Xids since the job began, with
    leftover_processes and xid as in the baseline, or else with their defaults. The epilog succeeds
    even if it finds a fault. nodevet notes the fault, and the next health check drains the node if
    the fault is still there. It prints a line for the user of the job on standard output and a line
    for the administrator on standard error.

    The exit code is always 0.
    """
    from nodevet.cli.speech import say, tell
    from nodevet.slurm.use.job import epilog
    from nodevet.slurm.use.look import node_name, this_machine
    from nodevet.vet.use.context import keeping_parser, open_context

    answer = epilog(this_machine(), open_context(project, names, keeping_parser()), node_name())
    if answer.user:
        tell(f"print {answer.user}")
    if answer.admin:
        say(answer.admin)
