"""`nodevet plan`: what fixes would change, as a file that can be approved and applied."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.cli import completing, options
from nodevet.cli.display import Display, display_options
from nodevet.cli.durations import Duration
from nodevet.cli.help import Command
from nodevet.cli.speech import say
from nodevet.fix.terminal.rollout import rollout_options, split
from nodevet.vet import options as vetting

RISKS = ("live", "idle", "drain", "reboot")  # nodevet.fixing.model.Risk
FORMS = ("fold", "diff", "full")  # nodevet.fix.plan.render.View
LONGEST = 30 * 86400.0  # seconds


@click.command(
    "plan",
    cls=Command,
    group="Fix",
    order=1,
    examples=(
        ("What would change, and where", "nodevet plan -i fleet.yaml -o plan.json"),
        (
            "One fix on one host, with the commands that would run",
            "nodevet plan gpu004 -b site.yaml --fix power_limit --format diff",
        ),
    ),
)
@options.hosts
@options.baselines
@click.option(
    "--fix",
    "fixes",
    multiple=True,
    metavar="ID",
    shell_complete=completing.fixes,
    help="Plan only this fix; may be repeated.  [default: what the baseline allows under `fix`]",
)
@click.option(
    "--restart",
    is_flag=True,
    help="Let fixes restart the services that they change, instead of waiting for the next start.",
)
@click.option(
    "--now",
    is_flag=True,
    help="Let fixes also change running processes, not only how they start.",
)
@click.option(
    "--max-risk",
    type=click.Choice(RISKS),
    default="reboot",
    show_default=True,
    help="Plan nothing above this risk.",
)
@click.option(
    "--valid",
    type=Duration(60, LONGEST, bare=False),
    default="24h",
    show_default=True,
    help="How long the plan may be applied.",
)
@click.option(
    "--window",
    type=Duration(60, LONGEST, bare=False),
    default="24h",
    show_default=True,
    help="Do not plan a fix on a node where it failed twice within this time, in the project's "
    "runs or in the store.",
)
@click.option("--again", is_flag=True, help="Plan a fix even if it failed twice within --window.")
@click.option(
    "--force",
    is_flag=True,
    help="Also plan fixes for a check that too many hosts began to fail in one night; see "
    "[budget] in nodevet.toml.",
)
@options.store
@click.option("--author", metavar="NAME", help="Who makes the plan, as named in allowed_signers.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the plan to FILE, for `nodevet approve`.  [default: only show it]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="fold",
    show_default=True,
    help="fold: one line for each change. diff: every file and command, once for all hosts with "
    "the same change. full: each host separately.",
)
@vetting.expect_hostname
@rollout_options(planned=True)
@vetting.reach
@vetting.verbose
@options.project
@display_options()
def command(
    targets: tuple[str, ...],
    inventories: tuple[str, ...],
    limit: tuple[str, ...],
    names: tuple[str, ...],
    max_risk: str,
    file: Path | None,
    form: str,
    store: str | None,
    expect_hostname: bool,
    project: Project,
    display: Display,
    **given: Any,
) -> None:
    """Plan how to fix what fails. Changes nothing on a host.

    nodevet vets the hosts as `nodevet check` does, then reads the settings that the fixes would
    change, and whether something else on the node also manages them. The options from --canary to
    --boot-settle are part of the plan, and approved with it.

    \b
    Exit codes:
      0  nothing to do: nothing fails that an allowed fix could change
      1  there is something to do, and the plan was written
      2  usage or configuration error
      3  nothing is planned, but not everything could be judged or planned
    """
    from msgspec.structs import replace

    from nodevet.fix.plan import unplanned
    from nodevet.fix.plan.render import View
    from nodevet.fix.plan_sheet import proposal_sheet
    from nodevet.fix.terminal.speaker import Speaker
    from nodevet.fix.use.plan import (
        PlanRequest,
        approval_problems,
        drain_problem,
        next_steps,
        propose,
        rules_of,
        try_out,
        write,
    )
    from nodevet.fix.use.power import with_identities
    from nodevet.fix.use.remember_fixes import intended_store, remember_plan
    from nodevet.fixing.model import Risk
    from nodevet.sheet import terminal
    from nodevet.vet.terminal.progress import watched
    from nodevet.vet.use.context import open_context
    from nodevet.vet.use.reach import fleet_options
    from nodevet.vet.use.targets import Targets

    rollout, given = split(given)
    plan_request, reach = _split_options(given)
    request = PlanRequest(max_risk=Risk(max_risk), rollout=rollout, **plan_request)
    if file:
        try_out(file)
    context = open_context(project, names)
    rules = rules_of(request, context, project.folder / "runs", Speaker(), store=store)
    hosts = Targets(
        names=targets, inventories=inventories, limit=limit, expect_hostname=expect_hostname
    ).hosts()
    url = intended_store(store, reaches=any(not host.local for host in hosts), say=say)
    with watched(len(hosts)) as listener:
        reached = fleet_options(context=context, choosing=True, fixes=True, **reach)
        proposal = propose(hosts, context, reached, rules, listener)
    if proposal.plan.rollout.power_cycle:
        proposal = replace(proposal, plan=with_identities(proposal.plan, hosts))
    plan = proposal.plan
    sheet = proposal_sheet(proposal, View(form))
    click.echo(terminal.render(sheet, colour=display.colour, width=display.width), nl=False)
    hookless = drain_problem(proposal)
    if not plan.steps:
        click.echo(f"{unplanned.conclusion(proposal)}.", err=True)
        if file and file.is_file():
            say(f"{file} contains an earlier plan and was not changed")
    elif file and hookless and not plan.rollout.drain_hook:
        raise UserError(f"{file} is not written: {hookless}; or leave it out: --max-risk idle")
    elif file:
        write(file, proposal)
    again = [word for path in inventories for word in ("-i", path)]
    again += [word for name in names for word in ("-b", name)]
    for way in next_steps(proposal, context, file, again):
        click.echo(way, err=True)
    if plan.steps and hookless:
        say(f"cannot be applied as it is: {hookless}")
    for why in approval_problems(plan, project):
        say(f"cannot be approved as it is: {why}")
    if plan.steps and file and url is not None and (why := remember_plan(url, plan)):
        say(f"{file} is not recorded: {why}")
    click.get_current_context().exit(proposal.exit_code)


def _split_options(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that PlanRequest takes under their own names, and all others."""
    own = ("fixes", "now", "restart", "again", "force", "author")
    times = ("valid", "window")
    return (
        {name: given[name] for name in own}
        | {name: timedelta(seconds=given[name]) for name in times},
        {name: value for name, value in given.items() if name not in own + times},
    )
