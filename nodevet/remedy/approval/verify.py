"""Whether a plan may be applied, and its run rolled back: all that is asked of approvals."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from nodevet.remedy.approval.judge import Standing, back, judge, standing, too_few, unfit
from nodevet.remedy.approval.policy import Policy
from nodevet.remedy.approval.signatures import (
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
from nodevet.remedy.model import Plan, read
from nodevet.result import Approval

__all__ = [
    "NAMESPACE",
    "ROLLBACK",
    "Approval",
    "ApproveError",
    "Approved",
    "RollbackRefused",
    "Signature",
    "Signer",
    "Standing",
    "back",
    "check_approvals",
    "check_rollback",
    "check_signature",
    "how_far",
    "may_roll_back",
    "missing",
    "sign",
    "signature_file",
    "signatures",
    "unfit",
]


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """The plan may be applied. `ignored` says why other signatures did not count."""

    approvals: tuple[Approval, ...]
    ignored: tuple[str, ...] = ()


class RollbackRefused(msgspec.Struct, frozen=True, kw_only=True):
    """A run may not be rolled back. `signed`: the approvals of its plan are still valid."""

    reasons: tuple[str, ...]
    signed: bool


def check_approvals(
    plan_bytes: bytes,
    plan: Plan,
    found: Sequence[Signature],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
    *,
    expires: bool = True,
    reboot: bool = False,
) -> Approved | list[str]:
    """Whether the plan may be applied at `now`, or every reason why not, for people; or could be,
    were it not for its age (`expires`). With `reboot` its nodes are rebooted too, whatever it says
    itself: that takes what a plan of that risk takes.

    `hosts_groups` are the inventory's groups of each host; a host that is missing has none.
    Raises ApproveError if ssh-keygen cannot be asked, ValueError if `plan` is not what
    `plan_bytes` says or `now` has no offset.
    """
    if read(plan_bytes) != plan:
        raise ValueError("the plan is not that of its bytes")
    verdicts = tuple(signers(plan_bytes, found, policy, now))
    outcome = _check(plan, verdicts, policy, now, hosts_groups, expires=expires)
    if not reboot or not isinstance(outcome, Approved):
        return outcome
    raised = replace(plan, rollout=replace(plan.rollout, reboot=True))
    return _check(raised, verdicts, policy, now, hosts_groups, expires=expires, why="to reboot: ")


def check_rollback(
    plan_bytes: bytes,
    plan: Plan,
    found: Sequence[Signature],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
) -> Approved | list[str]:
    """Whether what `plan` names may be rolled back by a user who did not apply it, or why not.
    `plan` may be a part of that of `plan_bytes`. Raises as `check_approvals`.

    It takes what its risk takes; a rollback reboots nothing, and a plan that expired can be
    rolled back.
    """
    verdicts = tuple(signers(plan_bytes, found, policy, now, ROLLBACK))
    return _check(back(plan), verdicts, policy, now, hosts_groups, expires=False, rollback=True)


def may_roll_back(
    plan_bytes: bytes,
    plan: Plan,
    hosts: Collection[str],
    files: tuple[Path, Path],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
    *,
    own: bool,
) -> Approved | RollbackRefused:
    """Whether a run may be rolled back on these hosts; `own` by the user who applied it, which
    needs no approval of its own.

    `files`: what the signatures of the plan, and those of the rollback, lie next to. The plan must
    be signed as when it was applied, except for the day: the folder of a run is easier to write to
    than a signature is to make. If a signer was revoked since, approvals of the rollback, which are
    over the same bytes, stand for those of the plan. Raises as `check_approvals`.
    """
    found = signatures(files[0])
    signed = check_approvals(plan_bytes, plan, found, policy, now, hosts_groups, expires=False)
    if own and isinstance(signed, Approved):
        return Approved(approvals=())
    part = replace(plan, steps=tuple(step for step in plan.steps if step.host in hosts))
    extra = signatures(files[1])
    outcome = check_rollback(plan_bytes, part, extra, policy, now, hosts_groups)
    if isinstance(outcome, Approved):  # of these very bytes, whoever signed them before
        return outcome
    if isinstance(signed, Approved):
        return RollbackRefused(reasons=tuple(outcome), signed=True)
    return RollbackRefused(reasons=tuple(signed), signed=False)


def check_signature(
    plan_bytes: bytes,
    plan: Plan,
    signature: Signature,
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
    *,
    rollback: bool = False,
) -> Approval | list[str]:
    """The approval that a signature is, or why it does not count. Raises ApproveError."""
    found = [signature]
    _, people, ignored = _judged(plan_bytes, plan, found, policy, now, hosts_groups, rollback)
    return people[0] if people else ignored


def missing(
    plan_bytes: bytes,
    plan: Plan,
    found: Sequence[Signature],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
    *,
    rollback: bool = False,
    file: str = "",
) -> str:
    """How many approvals are missing; empty if there are enough. Raises ApproveError."""
    part, people, _ = _judged(plan_bytes, plan, found, policy, now, hosts_groups, rollback)
    return too_few(part, people, policy, rollback=rollback, file=file)


def how_far(
    plan_bytes: bytes,
    plan: Plan,
    found: Sequence[Signature],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
    *,
    rollback: bool = False,
) -> Standing:
    """Who approved so far, and who may. Raises ApproveError."""
    part, people, _ = _judged(plan_bytes, plan, found, policy, now, hosts_groups, rollback)
    return standing(part, people, policy, hosts_groups)


def _judged(
    plan_bytes: bytes,
    plan: Plan,
    found: Sequence[Signature],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
    rollback: bool,
) -> tuple[Plan, Sequence[Approval], list[str]]:
    """What is to be approved, who approved it, and why other signatures do not count."""
    part, namespace = (back(plan), ROLLBACK) if rollback else (plan, NAMESPACE)
    verdicts = tuple(signers(plan_bytes, found, policy, now, namespace))
    return (part, *judge(part, verdicts, policy, hosts_groups))


def _check(
    plan: Plan,
    verdicts: Sequence[Signer | str],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
    *,
    expires: bool,
    rollback: bool = False,
    why: str = "",
) -> Approved | list[str]:
    """Whether these signatures are enough, or every reason why not; what is missing is told with
    `why` it is needed."""
    reasons = unfit(plan, policy, now, expires=expires)
    people, ignored = judge(plan, verdicts, policy, hosts_groups)
    if plan.risk is not None and (few := too_few(plan, people, policy, rollback=rollback)):
        reasons += [*ignored, f"{why}{few}"]
    return reasons or Approved(approvals=tuple(people), ignored=tuple(ignored))
