"""Whether a plan is approved: by whom, who may, and how many must."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone

import msgspec
from msgspec.structs import replace

from nodevet.fixing.model import Risk
from nodevet.printable import brief
from nodevet.problems import either
from nodevet.remedy.approval.policy import RULES, Policy
from nodevet.remedy.approval.signatures import (
    ROLLBACK,
    ApproveError,
    Signature,
    Signer,
    sign,
    signature_file,
    signatures,
    signers,
)
from nodevet.remedy.model import Plan, Step, read
from nodevet.result import Approval

__all__ = [
    "ROLLBACK",
    "Approval",
    "ApproveError",
    "Approved",
    "Signature",
    "Signer",
    "back",
    "check_approvals",
    "check_rollback",
    "judge",
    "needs",
    "refusal",
    "sign",
    "signature_file",
    "signatures",
    "signers",
    "too_few",
    "unfit",
]


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """The plan may be applied. `ignored` says why other signatures did not count."""

    approvals: tuple[Approval, ...]
    ignored: tuple[str, ...] = ()


def check_approvals(
    plan_bytes: bytes,
    plan: Plan,
    found: Sequence[Signature],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
    *,
    expires: bool = True,
) -> Approved | list[str]:
    """Whether the plan may be applied at `now`, or every reason why not, for people; or could be,
    were it not for its age (`expires`).

    `hosts_groups` are the inventory's groups of each host; a host that is missing has none.
    Raises ApproveError where ssh-keygen cannot be asked, ValueError where `plan` is not what
    `plan_bytes` says or `now` has no offset.
    """
    if read(plan_bytes) != plan:
        raise ValueError("the plan is not that of its bytes")
    reasons = unfit(plan, policy, now, expires=expires)
    people, ignored = judge(
        plan, tuple(signers(plan_bytes, found, policy, now)), policy, hosts_groups
    )
    if plan.risk is not None:
        needed = needs(plan, policy)
        if len(people) < needed:
            reasons += [*ignored, too_few(plan, people, needed)]
    return reasons or Approved(approvals=tuple(people), ignored=tuple(ignored))


def check_rollback(
    plan_bytes: bytes,
    plan: Plan,
    found: Sequence[Signature],
    policy: Policy,
    now: datetime,
    hosts_groups: Mapping[str, Collection[str]],
) -> Approved | list[str]:
    """Whether what `plan` names may be rolled back by somebody else than who applied it, or why
    not. `plan` may be a part of that of `plan_bytes`. Raises as `check_approvals`.

    It takes what its risk takes; a rollback reboots nothing, and a plan that expired can be
    rolled back.
    """
    part = back(plan)
    reasons = unfit(part, policy, now, expires=False)
    verdicts = tuple(signers(plan_bytes, found, policy, now, ROLLBACK))
    people, ignored = judge(part, verdicts, policy, hosts_groups)
    if part.risk is not None and len(people) < (needed := needs(part, policy)):
        reasons += [*ignored, too_few(part, people, needed, rollback=True)]
    return reasons or Approved(approvals=tuple(people), ignored=tuple(ignored))


def back(plan: Plan) -> Plan:
    """A plan as its rollback is judged."""
    return replace(plan, rollout=replace(plan.rollout, reboot=False, verify_reboot=False))


def unfit(plan: Plan, policy: Policy, now: datetime, *, expires: bool = True) -> list[str]:
    """Why nobody can approve this plan, whoever signs it."""
    if now.tzinfo is None:
        raise ValueError("now needs an offset")
    reasons = []
    if plan.risk is None:
        reasons.append("the plan has no steps: there is nothing to approve")
    if expires and (why := _expired(plan, now)):
        reasons.append(why)
    if plan.risk is not None and policy.forbids_own(plan.risk) and not policy.names(plan.author):
        reasons.append(
            f"the author, {brief(plan.author)}, is not in {policy.shown}, so it cannot be told "
            f"whether they approve their own {plan.risk.value} plan; give them a line there, or "
            "plan again with --author and the name given there"
        )
    return reasons


def _expired(plan: Plan, now: datetime) -> str:
    ends = _moment(plan.expires)
    if ends is None:
        return f"the plan does not say when it expires ({brief(plan.expires)}); plan again"
    return f"the plan expired at {brief(plan.expires)}; plan again" if now >= ends else ""


def needs(plan: Plan, policy: Policy) -> int:
    """How many people must approve: the most that any of its steps asks for."""
    return max((policy.needed[plan.risk_of(step)] for step in plan.steps), default=1)


def judge(
    plan: Plan,
    verdicts: Sequence[Signer | str],
    policy: Policy,
    hosts_groups: Mapping[str, Collection[str]],
) -> tuple[list[Approval], list[str]]:
    """One approval per person that may approve the whole plan; and why others do not count."""
    approvals, ignored = [], [verdict for verdict in verdicts if isinstance(verdict, str)]
    for person in _people([one for one in verdicts if isinstance(one, Signer)]):
        first = person[0]
        names = {name for signer in person for name in signer.names}
        why = refusal(plan, names, first.names[0], policy, hosts_groups)
        if why:
            ignored.append(f"{first.file}: {why}")
            continue
        approvals.append(Approval(who=first.names[0], key=first.key, file=first.file))
        ignored += [
            f"{again.file}: signed by {brief(again.names[0])}, who is "
            f"{brief(first.names[0])} again and counts once"
            for again in person[1:]
        ]
    return approvals, ignored


def refusal(
    plan: Plan,
    names: Collection[str],
    who: str,
    policy: Policy,
    hosts_groups: Mapping[str, Collection[str]],
) -> str:
    """Why a person of these names may not approve this plan; empty where they may."""
    who = brief(who)
    if plan.risk is not None and plan.author in names and policy.forbids_own(plan.risk):
        return (
            f"{who} is the author, who does not approve their own {plan.risk.value} plan; "
            "someone else must"
        )
    rules = policy.of(names)

    def uncovered(step: Step) -> bool:
        groups = hosts_groups.get(step.host, ())
        return not any(rule.covers(plan.risk_of(step), groups) for rule in rules)

    missing = [step for step in plan.steps if uncovered(step)]
    if not missing:
        return ""
    step = missing[0]
    groups = ", ".join(map(brief, sorted(hosts_groups.get(step.host, ()))))
    more = f" and {len(missing) - 1} more steps" if len(missing) > 1 else ""
    may = either(map(str, rules)) if rules else "nothing"
    return (
        f"{who} may not approve {brief(step.id)}, {plan.risk_of(step).value} on a host in "
        f"{groups or 'no group'}{more}: {RULES} lets them approve {may}; someone who may must, "
        "or plan fewer hosts and fixes"
    )


def too_few(plan: Plan, people: Sequence[Approval], needed: int, *, rollback: bool = False) -> str:
    """How many approvals are missing, and whose count."""
    risk = (plan.risk or Risk.LIVE).value
    who = ", ".join(brief(one.who) for one in people)
    have = f"{len(people)} ({who})" if people else "none"
    noun = "approval" if needed == 1 else "approvals by different people"
    what, way = (
        ("its rollback by another user", "nodevet approve --rollback RUN")
        if rollback
        else ("the plan", "nodevet approve")
    )
    return f"{what} needs {needed} {noun} for {risk} and has {have}; run: {way}"


def _people(found: Sequence[Signer]) -> list[list[Signer]]:
    """Signers who share a name or a key, directly or through another, are one person."""
    people: list[list[Signer]] = []
    for signer in found:
        marks = {signer.key, *signer.names}
        same = [
            person
            for person in people
            if any(not marks.isdisjoint((one.key, *one.names)) for one in person)
        ]
        people = [person for person in people if person not in same]
        people.append([*(one for person in same for one in person), signer])
    return people


def _moment(text: str) -> datetime | None:
    """ISO 8601 with an offset; None for anything else."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment.astimezone(timezone.utc) if moment.tzinfo else None
