"""Whether a plan may be applied, or its run rolled back: asked before, and while that goes on."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from msgspec.structs import replace

from nodevet.model import Host
from nodevet.printable import brief
from nodevet.remedy.approval import verify
from nodevet.remedy.approval.policy import PolicyError, load
from nodevet.remedy.approval.verify import Approved, ApproveError, Signature
from nodevet.remedy.journal import folder
from nodevet.remedy.journal.folder import RunFolder
from nodevet.remedy.journal.records import JournalRecord, RunBegin
from nodevet.remedy.model import Plan
from nodevet.result import Approval
from nodevet.run.errors import UserError


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
    policy, now = load(project), datetime.now(timezone.utc)
    groups = groups_of(hosts)
    outcome = verify.check_approvals(text, plan, found, policy, now, groups)
    if not isinstance(outcome, Approved):
        return outcome
    if not reboot:
        return outcome.approvals
    raised = replace(plan, rollout=replace(plan.rollout, reboot=True))
    reasons = verify.unfit(raised, policy, now)
    verdicts = tuple(verify.signers(text, found, policy, now))
    people, ignored = verify.judge(raised, verdicts, policy, groups)
    if len(people) < (needed := verify.needs(raised, policy)):
        reasons += [*ignored, f"to reboot: {verify.too_few(raised, people, needed)}"]
    return reasons or tuple(people)


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

    The plan itself must be signed as when it was applied, except for the day: the folder of a run
    is easier to write to than a signature is to make. If a signer was revoked since, approvals of
    the rollback, which are over the same bytes, stand for those of the plan.
    """
    if not todo:
        return ()
    policy, now = load(project), datetime.now(timezone.utc)
    groups = groups_of(hosts)
    found = verify.signatures(run.plan_file)
    signed = verify.check_approvals(text, plan, found, policy, now, groups, expires=False)
    known = isinstance(signed, Approved)
    mine = folder.operator()
    theirs = {one.user for one in records if isinstance(one, RunBegin) and one.kind == "apply"}
    if known and mine in theirs:
        return ()
    part = replace(plan, steps=tuple(step for step in plan.steps if step.host in todo))
    extra = verify.signatures(run.path / "rollback")
    outcome = verify.check_rollback(text, part, extra, policy, now, groups)
    if isinstance(outcome, Approved):  # of these very bytes, whoever signed them before
        return outcome.approvals
    if not isinstance(signed, Approved):
        why = "the approvals of the plan are not valid now, so the run may not be rolled back:"
        way = f"if it is the plan that was applied: nodevet approve --rollback {run.path}"
        raise UserError("\n".join([why, *signed, way]))
    who = ", ".join(sorted(brief(one) for one in theirs if one)) or "it does not say who"
    head = f"{run.path}: applied by {who}, not by {brief(mine)}; it may not be rolled back:"
    raise UserError("\n".join([head, *outcome]))


def closed_rollback(asked: Callable[[], Sequence[Approval]]) -> str:
    """Why the rollback may not go on as of now; empty while it may."""
    try:
        asked()
    except (UserError, ApproveError, PolicyError) as error:
        return "; ".join(str(error).splitlines())
    return ""


def groups_of(hosts: Sequence[Host]) -> Mapping[str, frozenset[str]]:
    """The groups of each host."""
    return {host.name: host.groups for host in hosts}
