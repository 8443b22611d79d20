"""`nodevet apply @local`: plan, show, ask at the terminal and apply, on this machine."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli.display import Display

if TYPE_CHECKING:
    from nodevet.fix.plan.planner import Proposal

LOCAL = "@local"
ONLY_LOCAL = ("fixes", "again")  # parameters of the command that a plan answers
TAKEN = (
    *("file", "inventories", "names", "deadline", "form", "store", "display", "project"),
    *("color", "project_code"),
    *ONLY_LOCAL,
)  # parameters that mean something here


def check_options(*, local: bool) -> None:
    """Raises UsageError for an option of the command line that does not go with @local, or only
    with it."""
    context = click.get_current_context()
    for param in context.command.params:
        name = param.name or ""
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and local and name not in TAKEN:
            raise click.UsageError(f"{param.opts[0]} does not go with {LOCAL}")
        if typed and not local and name in ONLY_LOCAL:
            raise click.UsageError(f"{param.opts[0]} goes with {LOCAL}: a plan names its fixes")


def fix_local(
    inventories: tuple[str, ...],
    names: Sequence[str],
    fixes: Sequence[str],
    *,
    again: bool,
    deadline: float,
    form: str,
    store: str | None,
    display: Display,
    project: Project,
) -> None:
    """Ends the command with its exit code."""
    from nodevet.fix.terminal import fix_run
    from nodevet.fix.terminal.watch import FixWatcher
    from nodevet.fix.use import fix
    from nodevet.fix.use.plan import next_steps
    from nodevet.vet.terminal.progress import watched
    from nodevet.vet.use.context import open_context, require_accepted

    require_accepted(project, keeps_runs=True)
    host = fix.this_machine((LOCAL,), inventories, project)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(
            f"apply {LOCAL} asks at the terminal, and there is none: use nodevet plan, approve and "
            "apply PLAN"
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
    with fix_run.record_fix_run(what.run, reach, store) as recording:
        with FixWatcher(display) as watcher:
            result = fix.carry_out(what, reach, context, project, recording(watcher), named=names)
        fix_run.finish(what.run, result, form, display, inventories)


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
