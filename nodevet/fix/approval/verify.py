"""Whether a plan may be applied, and its run rolled back: all that is asked of approvals."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from nodevet.fix.approval.judge import Standing, back, judge, standing, too_few, unfit
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


class Approvable(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that approvals are asked of, and what they are judged by.

    `plan` is that of `plan_bytes`; `hosts_groups` are the inventory's groups of each host, and a
    host that is missing has none.
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
    asked: Approvable, found: Sequence[Signature], *, expires: bool = True, reboot: bool = False
) -> Approved | list[str]:
    """Whether the plan may be applied now, or every reason why not, for people; or could be, were
    it not for its age (`expires`). With `reboot` its nodes are rebooted too, whatever it says
    itself: that takes what a plan of that risk takes.

    Raises ApproveError if ssh-keygen cannot be asked, ValueError if the plan is not what its bytes
    say or `now` has no offset.
    """
    if read(asked.plan_bytes) != asked.plan:
        raise ValueError("the plan is not that of its bytes")
    verdicts = tuple(signers(asked.plan_bytes, found, asked.policy, asked.now))
    outcome = _check(asked, verdicts, expires=expires)
    if not reboot or not isinstance(outcome, Approved):
        return outcome
    raised = replace(asked.plan, rollout=replace(asked.plan.rollout, reboot=True))
    return _check(replace(asked, plan=raised), verdicts, expires=expires, why="to reboot: ")


def check_rollback(asked: Approvable, found: Sequence[Signature]) -> Approved | list[str]:
    """Whether what the plan names may be rolled back by a user who did not apply it, or why not.
    It may be a part of that of its bytes. Raises as `check_approvals`.

    It takes what its risk takes; a rollback reboots nothing, and a plan that expired can be
    rolled back.
    """
    verdicts = tuple(signers(asked.plan_bytes, found, asked.policy, asked.now, ROLLBACK))
    return _check(replace(asked, plan=back(asked.plan)), verdicts, expires=False, rollback=True)


def may_roll_back(
    asked: Approvable, hosts: Collection[str], files: tuple[Path, Path], *, own: bool
) -> Approved | RollbackRefused:
    """Whether a run may be rolled back on these hosts; `own` by the user who applied it, which
    needs no approval of its own.

    `files`: what the signatures of the plan, and those of the rollback, lie next to. The plan must
    be signed as when it was applied, except for the day: the folder of a run is easier to write to
    than a signature is to make. If a signer was revoked since, approvals of the rollback, which are
    over the same bytes, stand for those of the plan. Raises as `check_approvals`.
    """
    found = signatures(files[0])
    signed = check_approvals(asked, found, expires=False)
    if own and isinstance(signed, Approved):
        return Approved(approvals=())
    steps = tuple(step for step in asked.plan.steps if step.host in hosts)
    part = replace(asked, plan=replace(asked.plan, steps=steps))
    outcome = check_rollback(part, signatures(files[1]))
    if isinstance(outcome, Approved):  # of these very bytes, whoever signed them before
        return outcome
    if isinstance(signed, Approved):
        return RollbackRefused(reasons=tuple(outcome), signed=True)
    return RollbackRefused(reasons=tuple(signed), signed=False)


def check_signature(
    asked: Approvable, signature: Signature, *, rollback: bool = False
) -> Approval | list[str]:
    """The approval that a signature is, or why it does not count. Raises ApproveError."""
    _, people, ignored = _judged(asked, [signature], rollback)
    return people[0] if people else ignored


def missing(
    asked: Approvable, found: Sequence[Signature], *, rollback: bool = False, file: str = ""
) -> str:
    """How many approvals are missing; empty if there are enough. Raises ApproveError."""
    part, people, _ = _judged(asked, found, rollback)
    return too_few(part, people, asked.policy, rollback=rollback, file=file)


def how_far(asked: Approvable, found: Sequence[Signature], *, rollback: bool = False) -> Standing:
    """Who approved so far, and who may. Raises ApproveError."""
    part, people, _ = _judged(asked, found, rollback)
    return standing(part, people, asked.policy, asked.hosts_groups)


def _judged(
    asked: Approvable, found: Sequence[Signature], rollback: bool
) -> tuple[Plan, Sequence[Approval], list[str]]:
    """What is to be approved, who approved it, and why other signatures do not count."""
    part, namespace = (back(asked.plan), ROLLBACK) if rollback else (asked.plan, NAMESPACE)
    verdicts = tuple(signers(asked.plan_bytes, found, asked.policy, asked.now, namespace))
    return (part, *judge(part, verdicts, asked.policy, asked.hosts_groups))


def _check(
    asked: Approvable,
    verdicts: Sequence[Signer | str],
    *,
    expires: bool,
    rollback: bool = False,
    why: str = "",
) -> Approved | list[str]:
    """Whether these signatures are enough, or every reason why not; what is missing is told with
    `why` it is needed."""
    plan, policy = asked.plan, asked.policy
    reasons = unfit(plan, policy, asked.now, expires=expires)
    people, ignored = judge(plan, verdicts, policy, asked.hosts_groups)
    if plan.risk is not None and (few := too_few(plan, people, policy, rollback=rollback)):
        reasons += [*ignored, f"{why}{few}"]
    return reasons or Approved(approvals=tuple(people), ignored=tuple(ignored))
