"""`nodevet fix @local`: plan, show, ask, and apply, on the machine at hand."""

import sys
from typing import TYPE_CHECKING

import click

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import completing, options
from nodevet.cli.display import Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command, Option

if TYPE_CHECKING:
    from nodevet.fix.plan.planner import Proposal


@click.command(
    "fix",
    cls=Command,
    group="Fix",
    order=5,
    examples=(
        ("What the baseline allows to be fixed, on this machine", "sudo nodevet fix @local"),
        (
            "One fix, by a baseline that expects its check",
            "sudo nodevet fix @local -b site.yaml --fix power_limit",
        ),
    ),
)
@click.argument("targets", nargs=-1, metavar="@local", shell_complete=completing.hosts)
@options.inventory(
    help="Inventory that says which groups this machine is in.",
)
@options.baselines
@click.option(
    "--fix",
    "fixes",
    multiple=True,
    metavar="ID",
    shell_complete=completing.fixes,
    help="Only this fix; may be repeated. Without it: those that the baseline allows under `fix`.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Plan what failed within the last 24 hours, too.",
)
@click.option(
    "--deadline",
    cls=Option,
    type=Duration(1),
    default="2m",
    show_default=True,
    help="Time limit for each look at the machine, and for each change.",
)
@options.store
@display_options()
@options.project
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    names: tuple[str, ...],
    fixes: tuple[str, ...],
    again: bool,
    deadline: float,
    store: str | None,
    display: Display,
    project: Project,
) -> None:
    """Fix this machine: plan, show, ask at the terminal, apply.

    For its root alone, for fixes of risk live alone (jobs may run), and for no other machine: there
    `nodevet plan`, `approve` and `apply` are the way. No signature is needed, unless the project
    has an approval.yaml, which may allow this with `local: true`.

    As with `nodevet apply`, a fix whose check does not pass right after it is rolled back at once,
    and the run is kept in runs/: `nodevet rollback RUN` reverts it. It is recorded if --store names
    where.

    \b
    Exit codes:
      0  everything is as expected now, or there was nothing to do
      1  not confirmed; or something failed and was rolled back, or was refused
      2  usage or configuration error
      3  a rollback failed or an outcome is unknown: look at the machine; or
         nothing is planned, but not everything could be judged or planned
    """
    from nodevet.fix.terminal import fix_run
    from nodevet.fix.terminal.watch import FixWatcher
    from nodevet.fix.use import fix
    from nodevet.fix.use.plan import next_steps
    from nodevet.vet.terminal.progress import watched
    from nodevet.vet.use.context import open_context, require_accepted

    require_accepted(project, keeps_runs=True)
    host = fix.this_machine(targets, inventories, project.folder)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(
            "fix asks at the terminal, and there is none: use nodevet plan, approve and apply"
        )
    context = open_context(project, names)
    with watched(1) as listener:
        proposal = fix.plan(
            host,
            context,
            project.folder,
            fixes,
            again=again,
            deadline=deadline,
            listener=listener,
        )
    _show(proposal, display)
    if not proposal.plan.steps:
        for way in () if proposal.unvetted else next_steps(proposal, context, None, ()):
            click.echo(way, err=True)
        click.get_current_context().exit(proposal.exit_code)
    if not click.confirm("Apply this now?", default=False, err=True):
        click.echo("not confirmed: nothing was changed", err=True)
        click.get_current_context().exit(1)
    what = fix.application(proposal, project.folder)
    reach = fix.reach(what, host, deadline)
    with fix_run.recorded(what.run, reach, store) as recording:
        with FixWatcher(display) as watcher:
            result = fix.carry_out(
                what, reach, context, project.folder, recording(watcher), named=names
            )
        fix_run.finish(what.run, result, "table", display, inventories)


def _show(proposal: "Proposal", display: Display) -> None:
    """The plan with every file and command, and what is not in it."""
    from nodevet.fix.plan import unplanned
    from nodevet.fix.plan.render import View
    from nodevet.fix.plan_sheet import proposal_sheet
    from nodevet.sheet import terminal

    sheet = proposal_sheet(proposal, View.DIFF)
    click.echo(terminal.render(sheet, colour=display.colour, width=display.width), nl=False)
    if not proposal.plan.steps:
        click.echo(f"{unplanned.conclusion(proposal)}.", err=True)
