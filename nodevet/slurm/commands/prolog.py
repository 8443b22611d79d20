"""`nodevet slurm prolog`: for Prolog."""

import click

from nodevet.base.last_verdict import clocks
from nodevet.base.project import Project
from nodevet.cli import options
from nodevet.slurm.options import JobHook, hook
from nodevet.vet.options import fail_on as fail_on_option


@click.command(
    "prolog",
    cls=JobHook,
    order=2,
    examples=(("What Prolog runs", "nodevet slurm prolog -b /etc/nodevet/site.yaml"),),
)
@hook
@fail_on_option
@options.project
def command(names: tuple[str, ...], max_age: float, fail_on: str, project: Project) -> None:
    """Let a job start only if this node passes. For Prolog of slurm.conf; it never calls Slurm.

    If a prolog or a health check with the same options passed in this boot less than --max-age ago,
    the prolog repeats that result. Otherwise it reads the machine. If the prolog fails, Slurm
    drains the node with the reason `Prolog error`; the next health check writes the real reason.
    The prolog prints a line for the user of the job on standard output and a line for the
    administrator on standard error.

    The job also starts if checks are unknown, if the node has just booted, or if the only failure
    is processes that other jobs may own.

    \b
    Exit codes:
      0  the job may start, also after a mistake in the command or a missing file
      1  the node fails, and the job must not start on it
    """
    import sys

    from nodevet.cli.speech import say, tell
    from nodevet.model import Severity
    from nodevet.slurm import kept
    from nodevet.slurm.use.job import prolog
    from nodevet.slurm.use.look import look, node_name, this_machine
    from nodevet.vet.findings.totals import summary
    from nodevet.vet.use.context import keeping_parser, open_context
    from nodevet.vet.use.keep_verdict import Keeping

    began, words, hosts = clocks(), kept.shared_words(sys.argv[1:]), this_machine()
    keeping = Keeping(words, max_age, hosts, began)
    context = open_context(project, names, keeping_parser())
    run = look(hosts, context, Severity(fail_on))
    text = f"{summary(run)}\n"
    if run.exit_code == 0:
        tell(text, nl=False)
        if why := keeping.keep(run, text, context, project.folder, dated=True):
            say(why)
        return
    answer = prolog(run, node_name())
    if answer.user:
        tell(f"print {answer.user}")
    say(answer.admin)
    click.get_current_context().exit(answer.code)
