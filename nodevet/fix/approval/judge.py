"""Whose signatures count for a plan, and how many are missing. Pure: ssh-keygen has been asked."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from nodevet.base.printable import brief
from nodevet.base.problems import or_list
from nodevet.fix.approval.policy import RULES, Policy, is_pattern, principals
from nodevet.fix.approval.signatures import Signer
from nodevet.fix.model import Plan, Step
from nodevet.fix.moments import instant
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Approval


class Standing(Struct, frozen=True, kw_only=True):
    """How far a plan is approved: by whom, of how many, and who may."""

    risk: Risk
    needed: int
    people: tuple[str, ...]
    may: tuple[str, ...]  # names of allowed_signers and approval.yaml; a pattern is not a name


def back(plan: Plan) -> Plan:
    """A plan as its rollback is judged."""
    return replace(plan, rollout=replace(plan.rollout, reboot=False, verify_reboot=False))


def unfit(plan: Plan, policy: Policy, now: datetime, *, expires: bool = True) -> list[str]:
    """Why this plan cannot be approved, whoever signs it."""
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
    ends = instant(plan.expires)
    if ends is None:
        return f"the plan does not say when it expires ({brief(plan.expires)}); plan again"
    return f"the plan expired at {brief(plan.expires)}; plan again" if now >= ends else ""


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
    """Why a person of these names may not approve this plan; empty if they may."""
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

    left = [step for step in plan.steps if uncovered(step)]
    if not left:
        return ""
    step = left[0]
    groups = ", ".join(map(brief, sorted(hosts_groups.get(step.host, ()))))
    more = f" and {len(left) - 1} more steps" if len(left) > 1 else ""
    may = or_list(map(str, rules)) if rules else "nothing"
    return (
        f"{who} may not approve {brief(step.id)}, {plan.risk_of(step).value} on a host in "
        f"{groups or 'no group'}{more}: {RULES} lets them approve {may}; someone who may must, "
        "or plan fewer hosts and fixes"
    )


def too_few(
    plan: Plan,
    people: Sequence[Approval],
    policy: Policy,
    *,
    rollback: bool = False,
    file: str = "",
) -> str:
    """How many approvals are missing, and whose count; empty if there are enough. `file`: of the
    plan, or the run's folder.

    A plan needs as many people as the most that any of its steps asks for.
    """
    needed = _needed(plan, policy)
    if len(people) >= needed:
        return ""
    risk = (plan.risk or Risk.LIVE).value
    who = ", ".join(brief(one.who) for one in people)
    have = f"{len(people)} ({who})" if people else "none"
    noun = "approval" if needed == 1 else "approvals by different people"
    what, way = (
        ("its rollback by another user", f"nodevet approve --rollback {file or 'RUN'}")
        if rollback
        else ("the plan", f"nodevet approve {file}".strip())
    )
    return f"{what} needs {needed} {noun} for {risk} and has {have}; run: {way}"


def standing(
    plan: Plan,
    people: Sequence[Approval],
    policy: Policy,
    hosts_groups: Mapping[str, Collection[str]],
) -> Standing:
    """Who approved, and who may: each by the first name of their line in allowed_signers."""
    lines = [tuple(field.split(",")) for field in principals(policy.signers)]
    listed = [name for rule in policy.rules or () for name in sorted(rule.who)]
    known = {name for line in lines for name in line}
    lines += [(name,) for name in listed if name not in known]
    may = [
        line[0]
        for line in lines
        if not any(map(is_pattern, line)) and not refusal(plan, line, line[0], policy, hosts_groups)
    ]
    return Standing(
        risk=plan.risk or Risk.LIVE,
        needed=_needed(plan, policy),
        people=tuple(one.who for one in people),
        may=tuple(dict.fromkeys(may)),
    )


def _needed(plan: Plan, policy: Policy) -> int:
    """How many people must approve it."""
    return max((policy.needed[plan.risk_of(step)] for step in plan.steps), default=1)


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
