"""Fix: make a plan for this machine, and apply it after confirmation."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodevet.base.errors import UserError
from nodevet.base.nodeset import LOCAL
from nodevet.base.project import Project
from nodevet.fix.events import FixListener
from nodevet.fix.journal.folder import RunFolder, SavedReach
from nodevet.fix.plan import plan_file
from nodevet.fix.plan.planner import Proposal
from nodevet.fix.use import confirmed, saved_reach
from nodevet.fix.use.apply import Application, apply
from nodevet.fix.use.plan import PlanRequest, propose, rules_of
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Result
from nodevet.model import Host
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.reach import fleet_options
from nodevet.vet.use.targets import Targets

OTHERS = (
    "@local is this machine; for other hosts: nodevet plan HOSTS -o plan.json, then nodevet "
    "approve plan.json and nodevet apply plan.json"
)


def this_machine(names: Sequence[str], inventories: Sequence[str], project: Project) -> Host:
    """This machine, as inventories describe it. Raises UserError if fixes need a signature, and
    PolicyError."""
    if tuple(names) != (LOCAL,):
        raise UserError(OTHERS)
    confirmed.check(confirmed.not_root())
    confirmed.check(confirmed.project_refusal(project))
    hosts = Targets(names=(LOCAL,), inventories=tuple(inventories)).hosts()
    if len(hosts) != 1 or not hosts[0].local or hosts[0].root != "/":
        raise UserError(OTHERS)
    return hosts[0]


def plan(
    host: Host,
    context: VetContext,
    project: Path,
    fixes: Sequence[str],
    *,
    again: bool = False,
    deadline: float,
    listener: VetListener | None = None,
) -> Proposal:
    """The live fixes of this machine. Raises as `propose` does."""
    request = PlanRequest(fixes=tuple(fixes), max_risk=Risk.LIVE, again=again)
    rules = rules_of(request, context, project / "runs", FixListener())
    options = fleet_options(**_reach(deadline), context=context, fixes=True)
    return propose([host], context, options, rules, listener)


def application(proposal: Proposal, project: Path) -> Application:
    """A plan that was just made, with the folder of its run."""
    return Application(
        run=RunFolder.fresh(project / "runs", proposal.plan),
        text=plan_file.write(proposal.plan),
        plan=proposal.plan,
        signatures=(),
        plan_name="plan.json",
    )


def reach(what: Application, host: Host, deadline: float) -> SavedReach:
    """How this machine is reached."""
    return saved_reach.reached_now(what.plan, [host], _reach(deadline))


def carry_out(
    what: Application,
    reach: SavedReach,
    context: VetContext,
    project: Project,
    listener: FixListener | None = None,
    *,
    named: Sequence[str] = (),
) -> Result:
    """Apply a plan that was shown and confirmed; see nodevet.fix.use.apply."""
    return apply(
        what,
        reach,
        context,
        project,
        {},
        named=named,
        confirmation=confirmed.by_this_user(),
        listener=listener,
    )


def _reach(deadline: float) -> Mapping[str, Any]:
    """The options of a visit; only the deadline matters for this machine."""
    names = ("ssh_config", "known_hosts")
    return {
        "parallel": 1,
        "connect_timeout": deadline,
        "deadline": deadline,
        "accept_new": False,
        "sudo": False,
        **dict.fromkeys(names),
    }
