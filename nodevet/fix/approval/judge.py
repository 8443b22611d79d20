"""Whose signatures count for a plan, and how many are missing. Pure; ssh-keygen ran before."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from nodevet.base.age import AHEAD
from nodevet.base.durations import coarse
from nodevet.base.printable import brief
from nodevet.base.problems import or_list
from nodevet.fix.approval.policy import RULES, Policy, is_pattern, principals
from nodevet.fix.approval.signatures import Signer
from nodevet.fix.model import Plan, Step
from nodevet.fix.moments import parse_time
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Approval
from nodevet.resource import ONE_WAY

ONE_WAY_STEP = f"a step that {ONE_WAY}"


class Standing(Struct, frozen=True, kw_only=True):
    """The approvals of a plan: how many it needs, by whom it has them, and who may approve it."""

    risk: Risk
    needed: int
    one_way: bool = False  # whether a step that cannot be undone raises `needed`
    people: tuple[str, ...]
    may: tuple[str, ...]  # names of allowed_signers and approval.yaml; a pattern is not a name


def as_rollback(plan: Plan) -> Plan:
    """The plan that approvals of its rollback are judged by: it reboots nothing."""
    quiet = replace(plan.rollout, reboot=False, verify_reboot=False, power_cycle=False)
    return replace(plan, rollout=quiet)


def plan_problems(plan: Plan, policy: Policy, now: datetime, *, expires: bool = True) -> list[str]:
    """Why nobody can approve this plan."""
    if now.tzinfo is None:
        raise ValueError("now needs an offset")
    reasons = []
    if plan.risk is None:
        reasons.append("the plan has no steps: there is nothing to approve")
    if expires and (why := _expiry_problem(plan, now)):
        reasons.append(why)
    if plan.risk is not None and policy.forbids_own(plan.risk) and not policy.names(plan.author):
        reasons.append(
            f"the author, {brief(plan.author)}, is not in {policy.shown}, so it is unknown "
            f"whether they approve their own {plan.risk.value} plan; give them a line there, or "
            "plan again with --author and the name given there"
        )
    return reasons


def _expiry_problem(plan: Plan, now: datetime) -> str:
    ends = parse_time(plan.expires)
    if ends is None:
        return f"the plan does not say when it expires ({brief(plan.expires)}); plan again"
    made = parse_time(plan.created)
    if made and (ahead := (made - now).total_seconds()) > AHEAD:
        return (
            f"the plan was made {coarse(ahead)} in the future ({brief(plan.created)}), so its age "
            "is not known: set the clock of this machine, or plan again"
        )
    return f"the plan expired at {brief(plan.expires)}; plan again" if now >= ends else ""


def judge(
    plan: Plan,
    verdicts: Sequence[Signer | str],
    policy: Policy,
    hosts_groups: Mapping[str, Collection[str]],
) -> tuple[list[Approval], list[str]]:
    """One approval for each person who may approve the whole plan, and why others do not count."""
    approvals, ignored = [], [verdict for verdict in verdicts if isinstance(verdict, str)]
    for person in _people([one for one in verdicts if isinstance(one, Signer)]):
        primary = person[0]
        names = {name for signer in person for name in signer.names}
        why = refusal(plan, names, primary.names[0], policy, hosts_groups)
        if why:
            ignored.append(f"{primary.file}: {why}")
            continue
        approvals.append(Approval(who=primary.names[0], key=primary.key, file=primary.file))
        ignored += [
            f"{repeat.file}: signed by {brief(repeat.names[0])}, who is "
            f"{brief(primary.names[0])} again and counts once"
            for repeat in person[1:]
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
            f"{who} is the author, who may not approve their own {plan.risk.value} plan; someone "
            f"else must"
        )
    rules = policy.rules_for(names)

    def uncovered(step: Step) -> bool:
        groups = hosts_groups.get(step.host, ())
        return not any(rule.covers(plan.risk_of(step), groups) for rule in rules)

    uncovered_steps = [step for step in plan.steps if uncovered(step)]
    if not uncovered_steps:
        return ""
    step = uncovered_steps[0]
    groups = ", ".join(map(brief, sorted(hosts_groups.get(step.host, ()))))
    rest = f" and {len(uncovered_steps) - 1} more steps" if len(uncovered_steps) > 1 else ""
    allowed = or_list(map(str, rules)) if rules else "nothing"
    return (
        f"{who} may not approve {brief(step.id)}, {plan.risk_of(step).value} on a host in "
        f"{groups or 'no group'}{rest}: {RULES} lets them approve {allowed}; someone who may must, "
        "or plan fewer hosts and fixes"
    )


def shortage(
    plan: Plan,
    people: Sequence[Approval],
    policy: Policy,
    *,
    rollback: bool = False,
    file: str = "",
) -> str:
    """How many approvals are missing, and whose count; empty if there are enough. `file`: of the
    plan, or the run's folder. The step that needs most people decides.
    """
    needed = _needed(plan, policy)
    if len(people) >= needed:
        return ""
    reason = ONE_WAY_STEP if _one_way_decides(plan, policy) else (plan.risk or Risk.LIVE).value
    names = ", ".join(brief(approval.who) for approval in people)
    count_text = f"{len(people)} ({names})" if people else "none"
    noun = "approval" if needed == 1 else "approvals by different people"
    subject, way = (
        ("its rollback by another user", f"nodevet approve --rollback {file or 'RUN'}")
        if rollback
        else ("the plan", f"nodevet approve {file}".strip())
    )
    return f"{subject} needs {needed} {noun} for {reason} and has {count_text}; run: {way}"


def approval_standing(
    plan: Plan,
    people: Sequence[Approval],
    policy: Policy,
    hosts_groups: Mapping[str, Collection[str]],
) -> Standing:
    """Who approved and who may, each by the first name of their line in allowed_signers."""
    lines = [tuple(field.split(",")) for field in principals(policy.signers)]
    listed = [name for rule in policy.rules or () for name in sorted(rule.who)]
    known_names = {name for line in lines for name in line}
    lines += [(name,) for name in listed if name not in known_names]
    may = [
        line[0]
        for line in lines
        if not any(map(is_pattern, line)) and not refusal(plan, line, line[0], policy, hosts_groups)
    ]
    return Standing(
        risk=plan.risk or Risk.LIVE,
        needed=_needed(plan, policy),
        one_way=_one_way_decides(plan, policy),
        people=tuple(approval.who for approval in people),
        may=tuple(dict.fromkeys(may)),
    )


def _needed(plan: Plan, policy: Policy) -> int:
    """How many people must approve it."""
    one_way = policy.one_way if any(step.is_one_way for step in plan.steps) else 1
    return max(one_way, _needed_for_risk(plan, policy))


def _needed_for_risk(plan: Plan, policy: Policy) -> int:
    return max((policy.needed[plan.risk_of(step)] for step in plan.steps), default=1)


def _one_way_decides(plan: Plan, policy: Policy) -> bool:
    """Whether more people must approve it because nothing can undo a step."""
    return _needed(plan, policy) > _needed_for_risk(plan, policy)


def _people(signers: Sequence[Signer]) -> list[list[Signer]]:
    """Signers who share a name or a key, directly or through another, are one person."""
    people: list[list[Signer]] = []
    for signer in signers:
        marks = {signer.key, *signer.names}
        matches = [
            person
            for person in people
            if any(not marks.isdisjoint((other.key, *other.names)) for other in person)
        ]
        people = [person for person in people if person not in matches]
        people.append([*(other for person in matches for other in person), signer])
    return people
