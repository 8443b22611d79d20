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
    """Look at what a job left behind. For Epilog of slurm.conf; it never calls Slurm.

    It judges processes that are left over, GPU memory that was not freed, and Xids since the job
    began: as the baseline has leftover_processes and xid, or else by their defaults. What it finds
    fails no epilog. nodevet notes it for the next health check, which drains the node if it is
    still so. On standard output stands a line for the user whose job it was, on standard error one
    for the administrator.

    The exit code is always 0.
    """
    from nodevet.cli.speech import say, tell
    from nodevet.slurm.use.job import epilog
    from nodevet.slurm.use.look import node_name, this_machine
    from nodevet.vet.use.context import open_context

    answer = epilog(this_machine(), open_context(project, names), node_name())
    if answer.user:
        tell(f"print {answer.user}")
    if answer.admin:
        say(answer.admin)
