"""What an approver reads first: hosts, risk, interruptions and approvals of a plan. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from nodevet.base.printable import brief, plain
from nodevet.checking.bmc_identity import SERIAL_TEXT, UUID_TEXT
from nodevet.fix.approval.judge import ONE_WAY_STEP, Standing
from nodevet.fix.model import Plan, Step
from nodevet.fix.moments import time_span_text
from nodevet.fix.plan import signed
from nodevet.fix.plan.signed import short_list
from nodevet.fix.settings import rollout_text
from nodevet.fixing.model import Risk
from nodevet.resource import ONE_WAY, RunCommand, one_way
from nodevet.resource.unit import SetUnit, stopped_around
from nodevet.sheet.text import count, nodeset

MEANS = {
    Risk.LIVE: "jobs may run",
    Risk.IDLE: "no process may use the GPUs that are changed",
    Risk.DRAIN: "the host must be drained",
    Risk.REBOOT: "the host must be drained",
}

PROOFS = (UUID_TEXT, SERIAL_TEXT)


def heading(plan: Plan, now: datetime, *, rollback: bool) -> str:
    """One line about the plan or rollback to approve."""
    subject = "Rollback of plan" if rollback else "Plan"
    return plain(f"{subject} {plan.id} by {plan.author}, made {time_span_text(plan.created, now)}")


def facts(
    plan: Plan, standing: Standing, now: datetime, *, rollback: bool
) -> Iterator[tuple[str, str]]:
    """(label, text), printable."""
    hosts = dict.fromkeys(step.host for step in plan.steps)
    if rollback:
        yield (
            "reverts",
            "all of it, on the hosts where it was done: lines with + below are removed, lines "
            "with - are restored",
        )
    yield "hosts", f"{len(hosts):,}: {nodeset(hosts)}"
    yield "risk", "; ".join(_risks(plan))
    if fixes := _one_way(plan.steps):
        yield "one-way", f"{ONE_WAY}: {short_list(fixes)}"
    programs = _programs(plan.steps)
    yield "interrupts", short_list(_interruptions(plan)) or _nothing_text(programs)
    if programs:
        yield "runs", short_list(programs)
    if proofs := _bmc_proofs(plan):
        yield "BMCs", short_list(proofs)
    if not rollback:
        canary = nodeset([*hosts][: plan.rollout.canary]) if len(hosts) > 1 else ""
        canary_text = f"{canary} first · " if canary else ""
        rollout = rollout_text(plan.rollout, len(hosts))
        yield "rollout", plain(f"{canary_text}{rollout} · nodevet {plan.nodevet or '?'}")
        yield "expires", time_span_text(plan.expires, now)
    yield from signed.facts(plan)
    yield "approvals", _approvals(standing)


def _risks(plan: Plan) -> Iterator[str]:
    """Each risk with its fixes, the highest first."""
    if plan.rollout.reboots:
        yield "reboot: hosts are rebooted, and must be drained"
    fixes_by_risk: dict[Risk, dict[str, set[str]]] = {}
    for step in plan.steps:
        fixes_by_risk.setdefault(step.risk, {}).setdefault(plain(step.fix), set()).add(step.host)
    for risk in sorted(fixes_by_risk, key=lambda risk: -risk.rank):
        fixes = [
            f"{fix} on {count(len(hosts), 'host')}" for fix, hosts in fixes_by_risk[risk].items()
        ]
        yield f"{risk.value}, {MEANS[risk]}: {short_list(fixes)}"


def _one_way(steps: Iterable[Step]) -> list[str]:
    """The number of actions of each fix that nothing can undo."""
    numbers: dict[str, int] = {}
    for step in steps:
        if step.is_one_way:
            fix = plain(step.fix)
            numbers[fix] = numbers.get(fix, 0) + len(one_way(step.all_actions))
    return [f"{count(number, 'action')} of {fix}" for fix, number in numbers.items()]


def _nothing_text(programs: Sequence[str]) -> str:
    """The plan interrupts nothing; but commands may do anything."""
    words = "no unit is stopped or restarted, no host is rebooted"
    return f"{words}, unless a command does it" if programs else f"nothing: {words}"


def _interruptions(plan: Plan) -> Iterator[str]:
    hosts = len({step.host for step in plan.steps})
    if plan.rollout.power_cycle:
        yield f"switches every changed host off and on by its BMC ({count(hosts, 'host')} at most)"
    elif plan.rollout.reboot:
        yield f"reboots every host that is changed ({count(hosts, 'host')} at most)"
    elif plan.rollout.verify_reboot:
        yield "reboots the canary"
    elif later := {step.host for step in plan.steps if step.effective in ("reset", "reboot")}:
        yield f"effective after a reboot, which is not part of this plan: {nodeset(later)}"
    hosts_by_action: dict[tuple[str, str], dict[str, None]] = {}
    for step in plan.steps:
        around = stopped_around(step.actions)
        for action in step.all_actions:
            if action.is_one_way:
                hosts_by_action.setdefault((plain(action.label), ""), {})[step.host] = None
            if isinstance(action, SetUnit) and (verb := _verb(action, around)):
                hosts_by_action.setdefault((verb, plain(action.name)), {})[step.host] = None
    for (verb, unit), members in hosts_by_action.items():
        yield f"{' '.join(filter(None, (verb, unit)))} on {count(len(members), 'host')}"


def _bmc_proofs(plan: Plan) -> list[str]:
    """How it is proven that the BMCs belong to their hosts: those without a proof first."""
    hosts: dict[str, list[str]] = {}
    for host, node in plan.nodes.items():
        if node.bmc:
            proof = next((text for text in PROOFS if node.bmc.startswith(text)), node.bmc)
            hosts.setdefault(proof, []).append(host)
    groups = sorted(hosts.items(), key=lambda group: group[0] in PROOFS)
    return [f"{nodeset(names)}: {brief(proof, 200)}" for proof, names in groups]


def _verb(action: SetUnit, around: Sequence[str]) -> str:
    if action.name in around:
        return "stops and starts again" if action.running is False else ""
    if action.restart:
        return "restarts"
    return (
        {True: "starts", False: "stops"}.get(action.running, "")
        if action.running is not None
        else ""
    )


def _programs(steps: Iterable[Step]) -> list[str]:
    """The program of each command, with the number of commands."""
    counts: dict[str, int] = {}
    for action in (action for step in steps for action in step.all_actions):
        if isinstance(action, RunCommand):
            program = brief(action.words[0] if action.words else "")
            counts[program] = counts.get(program, 0) + 1
    return [f"{program} ({number:,} ×)" for program, number in counts.items()]


def _approvals(approval: Standing) -> str:
    """Who has approved the plan, and who may still."""
    people = ", ".join(map(brief, approval.people))
    needed_text = count(approval.needed, "approval")
    different = " by different people" if approval.needed > 1 else ""
    reason = ONE_WAY_STEP if approval.one_way else f"risk {approval.risk.value}"
    requirement = f"{needed_text}{different} for {reason}"
    if len(approval.people) >= approval.needed:
        return f"enough: {requirement}; by {people}"
    count_text = f"has {len(approval.people)} ({people})" if people else "has none"
    candidates = short_list([brief(name) for name in approval.may if name not in approval.people])
    candidates_text = (
        f"may still approve: {candidates}"
        if candidates
        else "no one else in allowed_signers may approve it"
    )
    return f"needs {requirement}; {count_text}; {candidates_text}"
