"""Whether approvals allow to apply a plan, or to roll its run back."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from nodevet.fix.approval.judge import (
    Standing,
    approval_standing,
    as_rollback,
    judge,
    plan_problems,
    shortage,
)
from nodevet.fix.approval.policy import Policy
from nodevet.fix.approval.signatures import (
    NAMESPACE,
    ROLLBACK,
    ApproveError,
    Signature,
    Signer,
    sign,
    signature_file,
    signatures,
    signers,
)
from nodevet.fix.model import Plan
from nodevet.fix.plan.plan_file import read
from nodevet.fixing.result import Approval

__all__ = [
    "NAMESPACE",
    "ROLLBACK",
    "Approvable",
    "Approval",
    "ApproveError",
    "Approved",
    "RollbackRefused",
    "Signature",
    "Signer",
    "Standing",
    "as_rollback",
    "check_approvals",
    "check_rollback",
    "check_signature",
    "how_far",
    "may_roll_back",
    "missing",
    "plan_problems",
    "sign",
    "signature_file",
    "signatures",
]


class Approvable(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and what its approvals are judged by.

    `plan` is the decoded `plan_bytes`; `hosts_groups` are the inventory's groups of each host; a
    missing host has none.
    """

    plan_bytes: bytes
    plan: Plan
    policy: Policy
    now: datetime  # with an offset
    hosts_groups: Mapping[str, Collection[str]]


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """The plan may be applied. `ignored` says why other signatures did not count."""

    approvals: tuple[Approval, ...]
    ignored: tuple[str, ...] = ()


class RollbackRefused(msgspec.Struct, frozen=True, kw_only=True):
    """A run may not be rolled back. `signed`: the approvals of its plan are still valid."""

    reasons: tuple[str, ...]
    signed: bool


def check_approvals(
    request: Approvable, files: Sequence[Signature], *, expires: bool = True, reboot: bool = False
) -> Approved | list[str]:
    """Whether the plan may be applied now, or every reason why not. Without `expires` its age does
    not matter. With `reboot` it must be approved for risk reboot, whatever its own risk.

    Raises ApproveError if ssh-keygen cannot run, ValueError if the plan does not match its bytes or
    `now` has no offset.
    """
    if read(request.plan_bytes) != request.plan:
        raise ValueError("the plan does not match its file")
    verdicts = tuple(signers(request.plan_bytes, files, request.policy, request.now))
    outcome = _check(request, verdicts, expires=expires)
    if not reboot or not isinstance(outcome, Approved):
        return outcome
    raised = replace(request.plan, rollout=replace(request.plan.rollout, reboot=True))
    return _check(replace(request, plan=raised), verdicts, expires=expires, why="to reboot: ")


def check_rollback(request: Approvable, files: Sequence[Signature]) -> Approved | list[str]:
    """Whether a user who did not apply the plan may roll it back, or why not. The plan may be a
    part of that in its bytes. Raises as `check_approvals`.

    The rollback needs the approvals for the plan's risk without reboots; an expired plan can be
    rolled back too.
    """
    verdicts = tuple(signers(request.plan_bytes, files, request.policy, request.now, ROLLBACK))
    return _check(
        replace(request, plan=as_rollback(request.plan)), verdicts, expires=False, rollback=True
    )


def may_roll_back(
    request: Approvable, hosts: Collection[str], files: tuple[Path, Path], *, own: bool
) -> Approved | RollbackRefused:
    """Whether a run may be rolled back on these hosts; with `own` by the user who applied it, who
    needs no further approval.

    `files`: the signatures of the plan, and those of the rollback, lie next to these. The plan must
    be signed as when it was applied, but may have expired: a run's folder is easier to write than a
    signature is to make. If a signer was revoked since, approvals of the rollback, which sign the
    same bytes, replace those of the plan. Raises as `check_approvals`.
    """
    plan_signatures = signatures(files[0])
    plan_approval = check_approvals(request, plan_signatures, expires=False)
    if own and isinstance(plan_approval, Approved):
        return Approved(approvals=())
    steps = tuple(step for step in request.plan.steps if step.host in hosts)
    partial = replace(request, plan=replace(request.plan, steps=steps))
    outcome = check_rollback(partial, signatures(files[1]))
    if isinstance(outcome, Approved):  # of these very bytes, whoever signed them before
        return outcome
    if isinstance(plan_approval, Approved):
        return RollbackRefused(reasons=tuple(outcome), signed=True)
    return RollbackRefused(reasons=tuple(plan_approval), signed=False)


def check_signature(
    request: Approvable, signature: Signature, *, rollback: bool = False
) -> Approval | list[str]:
    """The approval that a signature is, or why it does not count. Raises ApproveError."""
    _, people, ignored = _judge(request, [signature], rollback)
    return people[0] if people else ignored


def missing(
    request: Approvable, files: Sequence[Signature], *, rollback: bool = False, file: str = ""
) -> str:
    """How many approvals are missing; empty if there are enough. Raises ApproveError."""
    part, people, _ = _judge(request, files, rollback)
    return shortage(part, people, request.policy, rollback=rollback, file=file)


def how_far(request: Approvable, files: Sequence[Signature], *, rollback: bool = False) -> Standing:
    """Who approved so far, and who may. Raises ApproveError."""
    part, people, _ = _judge(request, files, rollback)
    return approval_standing(part, people, request.policy, request.hosts_groups)


def _judge(
    request: Approvable, files: Sequence[Signature], rollback: bool
) -> tuple[Plan, Sequence[Approval], list[str]]:
    """The plan to approve, its approvals, and why other signatures do not count."""
    part, namespace = (
        (as_rollback(request.plan), ROLLBACK) if rollback else (request.plan, NAMESPACE)
    )
    verdicts = tuple(signers(request.plan_bytes, files, request.policy, request.now, namespace))
    return (part, *judge(part, verdicts, request.policy, request.hosts_groups))


def _check(
    request: Approvable,
    verdicts: Sequence[Signer | str],
    *,
    expires: bool,
    rollback: bool = False,
    why: str = "",
) -> Approved | list[str]:
    """Whether these signatures are enough, or every reason why not; `why` is put before a missing
    approval."""
    plan, policy = request.plan, request.policy
    reasons = plan_problems(plan, policy, request.now, expires=expires)
    people, ignored = judge(plan, verdicts, policy, request.hosts_groups)
    if plan.risk is not None and (
        shortage_text := shortage(plan, people, policy, rollback=rollback)
    ):
        reasons += [*ignored, f"{why}{shortage_text}"]
    return reasons or Approved(approvals=tuple(people), ignored=tuple(ignored))
