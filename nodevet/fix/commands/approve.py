"""`nodevet approve`: sign a plan that was looked at."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import completing, options
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command

if TYPE_CHECKING:
    from nodevet.fix.model import Plan
    from nodevet.fix.plan.render import View
    from nodevet.fix.use.approve import ApprovalRequest


@click.command(
    "approve",
    cls=Command,
    group="Fix",
    order=2,
    examples=(
        ("Look at the plan and sign it", "nodevet approve plan.json"),
        ("Show who signed it, and whether that is enough", "nodevet approve plan.json --verify"),
    ),
)
@click.argument(
    "file", metavar="PLAN", type=click.Path(path_type=Path), shell_complete=completing.plans
)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Private SSH key, or a public one whose private half is in the agent.  "
    "[default: the only one in ~/.ssh]",
)
@click.option("--yes", is_flag=True, help="Approve without confirmation.")
@click.option(
    "--full",
    is_flag=True,
    help="Show each host separately, with the UUIDs of its GPUs.  [default: show equal changes of "
    "several hosts once]",
)
@click.option(
    "--folded", is_flag=True, help="Show one line per change, without its files and commands."
)
@click.option(
    "--rollback",
    is_flag=True,
    help="PLAN is the folder of a run: approve its rollback by someone who did not apply it.",
)
@click.option(
    "--verify", is_flag=True, help="Sign nothing; show who approved, and whether that is enough."
)
@options.project_of("Folder with allowed_signers and approval.yaml.")
@display_options()
def command(
    file: Path,
    key: Path | None,
    yes: bool,
    full: bool,
    folded: bool,
    rollback: bool,
    verify: bool,
    project: Project,
    display: Display,
) -> None:
    """Show PLAN once more and sign it with your SSH key.

    nodevet writes the signature next to the plan, to PLAN.<principal>.sig. The project's
    allowed_signers and approval.yaml say whose key it is, who may approve what, and how many must.

    \b
    Exit codes:
      0  signed; with --verify: there are enough approvals
      1  not signed: refused, or not confirmed; with --verify: too few approvals
      2  usage or configuration error
    """
    from nodevet.fix.plan.render import View
    from nodevet.fix.use.approve import request
    from nodevet.vet.use.context import require_accepted

    if full and folded:
        raise click.UsageError("--full, --folded: give one")
    require_accepted(project)
    approval_request = request(file, project, rollback=rollback)
    view = View.FULL if full else View.FOLD if folded else View.DIFF
    code = (
        _verify(approval_request)
        if verify
        else _approve(approval_request, key, view, display, yes=yes)
    )
    click.get_current_context().exit(code)


def _verify(approval_request: "ApprovalRequest") -> int:
    """Say who approved; 0 if that is enough."""
    from nodevet.base.printable import brief

    outcome = approval_request.check()
    if isinstance(outcome, list):
        _say("not approved", outcome)
        return 1
    _say("not counted", outcome.ignored)
    for approval in outcome.approvals:
        click.echo(f"approved by {brief(approval.who)}, key {approval.key} ({approval.file})")
    return 0


def _approve(
    approval_request: "ApprovalRequest",
    key: Path | None,
    view: "View",
    display: Display,
    *,
    yes: bool,
) -> int:
    """Show, ask, sign and keep the signature; 1 if it would not count."""
    from nodevet.base.files import home_folder
    from nodevet.base.printable import brief
    from nodevet.fix.use.approve import NotCountedError, only_key, request_text, sign

    if unfit := approval_request.problems():
        _say("cannot be approved", unfit)
        return 1
    click.echo(
        request_text(approval_request, view, colour=display.colour, width=display.width), nl=False
    )
    key = key or only_key(home_folder() / ".ssh")
    if not yes and not _confirmed(approval_request.plan):
        click.echo("not approved: nothing is signed", err=True)
        return 1
    try:
        signed = sign(approval_request, key)
    except NotCountedError as error:
        _say("your signature would not count, and is not stored", error.reasons)
        return 1
    click.echo(f"approved by {brief(signed.who)}: {signed.file}")
    if approval_request.rollback:
        way = f"nodevet rollback {approval_request.file.parent}"
    else:
        way = f"nodevet apply {approval_request.file}, with the -i and -b of the plan"
    click.echo(signed.missing or f"that is enough; run it with: {way}")
    return 0


def _confirmed(plan: "Plan") -> bool:
    """Whether the plan's id was typed. Raises UserError if that cannot be asked for."""
    from nodevet.base.printable import brief

    if not sys.stdin.isatty():
        raise UserError("stdin is not a terminal; use --yes to approve without confirmation")
    id = brief(plan.id)
    typed = click.prompt(f"Type {id} to approve", default="", show_default=False, err=True)
    return str(typed).strip() == plan.id


def _say(what: str, reasons: Iterable[str]) -> None:
    for reason in reasons:
        click.echo(f"{what}: {reason}", err=True)
