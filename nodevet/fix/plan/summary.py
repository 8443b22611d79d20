"""What an approver reads first: how far a plan reaches, what it interrupts, who must sign. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from nodevet.base.printable import brief, plain
from nodevet.fix.approval.judge import Standing
from nodevet.fix.model import Plan, Step
from nodevet.fix.moments import until
from nodevet.fix.plan import signed
from nodevet.fix.settings import told
from nodevet.fixing.model import Risk
from nodevet.resource import RunCommand
from nodevet.resource.unit import SetUnit, stopped_around
from nodevet.sheet.text import count, nodeset

MOST = 8  # names in one line
MEANS = {
    Risk.LIVE: "jobs may run",
    Risk.IDLE: "no process may be on the GPUs that are changed",
    Risk.DRAIN: "the host must be drained",
    Risk.REBOOT: "the host must be drained",
}


def heading(plan: Plan, now: datetime, *, rollback: bool) -> str:
    """What is asked for, in one line."""
    what = "Rollback of plan" if rollback else "Plan"
    return plain(f"{what} {plan.id} by {plan.author}, made {until(plan.created, now)}")


def facts(
    plan: Plan, standing: Standing, now: datetime, *, rollback: bool
) -> Iterator[tuple[str, str]]:
    """Label and text, printable."""
    hosts = dict.fromkeys(step.host for step in plan.steps)
    if rollback:
        yield (
            "reverts",
            "all of it, on the hosts where it was done: what is + below goes, - is restored",
        )
    yield "hosts", f"{len(hosts):,}: {nodeset(hosts)}"
    yield "risk", "; ".join(_risks(plan))
    programs = _programs(plan.steps)
    yield "interrupts", _some(list(_interrupts(plan))) or _nothing(programs)
    if programs:
        yield "runs", _some(programs)
    if not rollback:
        canary = nodeset([*hosts][: plan.rollout.canary]) if len(hosts) > 1 else ""
        first = f"{canary} first · " if canary else ""
        said = told(plan.rollout, len(hosts))
        yield "rollout", plain(f"{first}{said} · nodevet {plan.nodevet or '?'}")
        yield "expires", until(plan.expires, now)
    yield from signed.facts(plan)
    yield "approvals", _approvals(standing)


def _risks(plan: Plan) -> Iterator[str]:
    """The highest first."""
    if plan.rollout.reboots:
        yield "reboot: hosts are rebooted, and must be drained"
    found: dict[Risk, dict[str, set[str]]] = {}
    for step in plan.steps:
        found.setdefault(step.risk, {}).setdefault(plain(step.fix), set()).add(step.host)
    for risk in sorted(found, key=lambda risk: -risk.rank):
        fixes = [f"{fix} on {count(len(some), 'host')}" for fix, some in found[risk].items()]
        yield f"{risk.value}, {MEANS[risk]}: {_some(fixes)}"


def _nothing(programs: Sequence[str]) -> str:
    """Commands may do anything: of those nothing is promised."""
    words = "no unit is stopped or restarted, no host is rebooted"
    return f"{words}, unless a command does it" if programs else f"nothing: {words}"


def _interrupts(plan: Plan) -> Iterator[str]:
    hosts = len({step.host for step in plan.steps})
    if plan.rollout.reboot:
        yield f"reboots every host that is changed ({count(hosts, 'host')} at most)"
    elif plan.rollout.verify_reboot:
        yield "reboots the canary"
    elif later := {step.host for step in plan.steps if step.effective in ("reset", "reboot")}:
        yield f"in force after a reboot, which is not part of this plan: {nodeset(later)}"
    found: dict[tuple[str, str], dict[str, None]] = {}
    for step in plan.steps:
        around = stopped_around(step.actions)
        for action in step.actions:
            if isinstance(action, SetUnit) and (verb := _verb(action, around)):
                found.setdefault((verb, plain(action.name)), {})[step.host] = None
    for (verb, unit), some in found.items():
        yield f"{verb} {unit} on {count(len(some), 'host')}"


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
    """What the commands begin with, and how many there are."""
    found: dict[str, int] = {}
    for action in (action for step in steps for action in step.actions):
        if isinstance(action, RunCommand):
            program = brief(action.words[0] if action.words else "")
            found[program] = found.get(program, 0) + 1
    return [f"{program} ({number:,} ×)" for program, number in found.items()]


def _approvals(standing: Standing) -> str:
    """Who has approved, and who may."""
    people = ", ".join(map(brief, standing.people))
    needed = count(standing.needed, "approval")
    different = " by different people" if standing.needed > 1 else ""
    said = f"{needed}{different} for risk {standing.risk.value}"
    if len(standing.people) >= standing.needed:
        return f"enough: {said}; by {people}"
    has = f"has {len(standing.people)} ({people})" if people else "has none"
    may = _some([brief(who) for who in standing.may if who not in standing.people])
    others = f"may still approve: {may}" if may else "no one else in allowed_signers may approve it"
    return f"needs {said}; {has}; {others}"


def _some(words: Sequence[str]) -> str:
    more = len(words) - MOST
    return ", ".join([*words[:MOST], *([f"and {more} more"] if more > 0 else [])])
