"""Whether a plan may be applied, or its run rolled back: asked before, and while that goes on."""

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from nodevet.base.errors import UserError
from nodevet.base.printable import brief
from nodevet.fix.approval import verify
from nodevet.fix.approval.policy import PolicyError, load
from nodevet.fix.approval.verify import Approvable, Approved, ApproveError, Signature
from nodevet.fix.journal import folder
from nodevet.fix.journal.folder import RunFolder
from nodevet.fix.journal.records import JournalRecord, RunBegin
from nodevet.fix.model import Plan
from nodevet.fix.use import confirmed
from nodevet.fixing.result import Approval
from nodevet.model import Host


def approved(
    text: bytes,
    plan: Plan,
    found: Sequence[Signature],
    hosts: Sequence[Host],
    project: Path,
    *,
    reboot: bool,
) -> Sequence[Approval] | list[str]:
    """Who approved the plan, or every reason why it may not be applied.

    A reboot takes approvals as a plan of that risk does.
    """
    outcome = verify.check_approvals(asked_of(text, plan, hosts, project), found, reboot=reboot)
    return outcome.approvals if isinstance(outcome, Approved) else outcome


def closing(
    run: RunFolder, text: bytes, plan: Plan, hosts: Sequence[Host], project: Path
) -> Callable[[bool], str]:
    """Says why the plan may not be carried out at the moment of asking, or with True why no node
    may be rebooted for it; empty while it may. Signatures and policy are read again each time.
    """

    def closed(reboot: bool) -> str:
        try:
            found = verify.signatures(run.plan_file)
            answer = approved(text, plan, found, hosts, project, reboot=reboot)
        except (ApproveError, PolicyError) as error:
            told = "; ".join(str(error).splitlines())
            return f"cannot tell whether the plan is approved: {told}"
        return "; ".join(answer) if isinstance(answer, list) else ""

    return closed


def rollback_approved(
    run: RunFolder,
    text: bytes,
    plan: Plan,
    todo: Sequence[str],
    hosts: Sequence[Host],
    project: Path,
    records: Sequence[JournalRecord],
) -> Sequence[Approval]:
    """Who approved that the run is rolled back on these nodes; whoever applied it needs no
    approval. Raises UserError if there are too few.
    """
    if confirmed.before(records):
        confirmed.check(confirmed.refused_later(run, plan, hosts))
        return ()
    if not todo:
        return ()
    theirs = {one.user for one in records if isinstance(one, RunBegin) and one.kind == "apply"}
    mine = folder.operator()
    asked, files = asked_of(text, plan, hosts, project), (run.plan_file, run.path / "rollback")
    outcome = verify.may_roll_back(asked, todo, files, own=mine in theirs)
    if isinstance(outcome, Approved):
        return outcome.approvals
    if not outcome.signed:
        why = "the approvals of the plan are not valid now, so the run may not be rolled back:"
        way = f"if it is the plan that was applied: nodevet approve --rollback {run.path}"
        raise UserError("\n".join([why, *outcome.reasons, way]))
    who = ", ".join(sorted(brief(one) for one in theirs if one)) or "it does not say who"
    head = f"{run.path}: applied by {who}, not by {brief(mine)}; it may not be rolled back:"
    raise UserError("\n".join([head, *outcome.reasons]))


def closed_rollback(asked: Callable[[], Sequence[Approval]]) -> str:
    """Why the rollback may not go on as of now; empty while it may."""
    try:
        asked()
    except (UserError, ApproveError, PolicyError) as error:
        return "; ".join(str(error).splitlines())
    return ""


def asked_of(text: bytes, plan: Plan, hosts: Sequence[Host], project: Path) -> Approvable:
    """The plan as of now. Raises PolicyError."""
    return Approvable(
        plan_bytes=text,
        plan=plan,
        policy=load(project),
        now=datetime.now(timezone.utc),
        hosts_groups={host.name: host.groups for host in hosts},
    )
