"""Whether a plan may be applied, or its run rolled back: checked before and during the run."""

from collections.abc import Callable, Sequence
from datetime import datetime, timezone

from nodevet.base.errors import UserError
from nodevet.base.printable import brief
from nodevet.base.project import Project
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


def find_approvals(
    text: bytes,
    plan: Plan,
    files: Sequence[Signature],
    hosts: Sequence[Host],
    project: Project,
    *,
    reboot: bool,
    expires: bool = True,
) -> Sequence[Approval] | list[str]:
    """The approvals of the plan, or every reason why it may not be applied.

    A reboot needs the approvals of a plan of risk reboot. Without `expires` the age of the plan
    does not matter.
    """
    outcome = verify.check_approvals(
        approvable_now(text, plan, hosts, project), files, expires=expires, reboot=reboot
    )
    return outcome.approvals if isinstance(outcome, Approved) else outcome


def approval_check(
    run: RunFolder,
    text: bytes,
    plan: Plan,
    hosts: Sequence[Host],
    project: Project,
    *,
    expires: bool = True,
) -> Callable[[bool], str]:
    """A function that returns why the plan may not be applied now, or with True why no node may be
    rebooted; empty if it may. It reads signatures and policy again each time. Without `expires` the
    age of the plan does not matter.
    """

    def closed(reboot: bool) -> str:
        try:
            files = verify.signatures(run.plan_file)
            outcome = find_approvals(
                text, plan, files, hosts, project, reboot=reboot, expires=expires
            )
        except (ApproveError, PolicyError) as error:
            reason = "; ".join(str(error).splitlines())
            return f"cannot tell whether the plan is approved: {reason}"
        return "; ".join(outcome) if isinstance(outcome, list) else ""

    return closed


def rollback_approved(
    run: RunFolder,
    text: bytes,
    plan: Plan,
    todo: Sequence[str],
    hosts: Sequence[Host],
    project: Project,
    records: Sequence[JournalRecord],
) -> Sequence[Approval]:
    """The approvals to roll the run back on these nodes; the user who applied it needs none.
    Raises UserError if there are too few.
    """
    if confirmed.is_confirmed_run(records):
        confirmed.check(confirmed.resume_refusal(run, plan, hosts))
        return ()
    if not todo:
        return ()
    appliers = {
        record.user for record in records if isinstance(record, RunBegin) and record.kind == "apply"
    }
    user = folder.operator()
    approvable, files = (
        approvable_now(text, plan, hosts, project),
        (run.plan_file, run.path / "rollback"),
    )
    outcome = verify.may_roll_back(approvable, todo, files, own=user in appliers)
    if isinstance(outcome, Approved):
        return outcome.approvals
    if not outcome.signed:
        why = "the approvals of the plan are not valid now, so the run may not be rolled back:"
        way = f"if it is the plan that was applied: nodevet approve --rollback {run.path}"
        raise UserError("\n".join([why, *outcome.reasons, way]))
    who = ", ".join(sorted(brief(record) for record in appliers if record)) or "it does not say who"
    head = f"{run.path}: applied by {who}, not by {brief(user)}; it may not be rolled back:"
    raise UserError("\n".join([head, *outcome.reasons]))


def closed_rollback(require_approvals: Callable[[], Sequence[Approval]]) -> str:
    """Why the rollback may not go on now; empty if it may."""
    try:
        require_approvals()
    except (UserError, ApproveError, PolicyError) as error:
        return "; ".join(str(error).splitlines())
    return ""


def approvable_now(text: bytes, plan: Plan, hosts: Sequence[Host], project: Project) -> Approvable:
    """The current plan. Raises PolicyError."""
    return Approvable(
        plan_bytes=text,
        plan=plan,
        policy=load(project),
        now=datetime.now(timezone.utc),
        hosts_groups={host.name: host.groups for host in hosts},
    )
