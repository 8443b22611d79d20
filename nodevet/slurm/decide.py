"""Decides which nodes to drain or resume, and why not the others. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nodevet.base.age import seconds_of
from nodevet.base.plan_marks import is_of
from nodevet.base.printable import brief
from nodevet.model import HostOutcome, HostReport, Status, Verdict
from nodevet.model.run import Run
from nodevet.slurm.nodes import ControllerNode
from nodevet.slurm.reason import VISIT, parse, reason_text, troubles_of

BUSY = "jobs run on it; the next health check after they end drains it"
MAINTAINED = "it is in maintenance; the next health check after that drains it"
FIXED = "apply drained it for a plan and has not given it back"
STARTING = "Slurm's controller has just started, and does not know its state yet"
UNKNOWN_NODE = "Slurm has no node of this name"
PASSING = (Verdict.OK, Verdict.WAIVED, Verdict.NOT_APPLICABLE)


class DrainLimits(NamedTuple):
    """How much of a cluster one run may take out of service."""

    share: float  # of all nodes: how many nodevet keeps drained at most, but at least one
    keep: int  # nodes of each partition that stay in service


class NodePlan(NamedTuple):
    """Whether to drain or resume one node."""

    node: str
    reason: str  # why it is drained; for resume: why it was drained
    why_not: str = ""  # why nothing is done; empty if it is drained or resumed
    is_short: bool = False  # only a limit stops it


def why_not_drained(node: ControllerNode, reason: str, *, will_look_again: bool = False) -> str:
    """Why nodevet does not drain this node for this reason; "" if it does. `will_look_again`: a
    later health check can drain it after its jobs or its maintenance end."""
    own, wished = node.own_reason, parse(reason)
    if node.is_foreign:
        by = f" by {brief(node.user)}" if node.user else ""
        return f"its reason is not nodevet's: {brief(node.reason)!r}{by}"
    if node.is_drained and own and wished and own.checks == wished.checks:
        return f"it is already drained for this: {node.reason}"
    if node.is_drained and own and own.plans:
        return FIXED
    if not will_look_again or node.is_drained:
        return ""
    if node.has_jobs:
        return BUSY
    return MAINTAINED if node.is_maintained else ""


def plan_drain(
    run: Run, nodes: Mapping[str, ControllerNode], limits: DrainLimits
) -> list[NodePlan]:
    """A plan for each host that fails in a run, in the run's order."""
    return list(_planned(_failing(run), nodes, limits))


def plan_resume(
    run: Run,
    nodes: Mapping[str, ControllerNode],
    machines: Mapping[tuple[str, str], str | None],
    of_plans: Collection[str] = (),
    ahead: float = 0.0,
) -> list[NodePlan]:
    """A plan for each node that nodevet drained. `machines`: machine ids by run and host.
    `of_plans`: plan ids; nodes that apply drained for these plans are resumed, too. `ahead`: how
    many seconds the clock of Slurm's controller is ahead of this machine's."""
    reports = {name: report for report in run.hosts for name in names_in_slurm(report.host)}
    plans = []
    for node in nodes.values():
        if node.is_drained and (own := node.own_reason):
            report = reports.get(node.name)
            before = machines.get((own.run, report.host)) if report else None
            why = _kept_for_plan(own.plans, of_plans)
            if report is None:
                why = why or "it is not in the run"
            else:
                why = why or _unproven(run, report, node, before, ahead)
            plans.append(NodePlan(node.name, node.reason, why))
    return plans


def _kept_for_plan(working: Sequence[str], ended: Collection[str]) -> str:
    """Why a node stays drained because apply may still work on it; "" if apply does not."""
    plan = next(
        (plan for plan in working if not any(is_of(plan, ended_plan) for ended_plan in ended)), ""
    )
    if not plan:
        return ""
    return f"apply drained it for plan {plan}; if apply no longer runs: resume --plan {plan}"


def _failing(run: Run) -> Iterator[tuple[str, str]]:
    """The hosts that fail, each with its reason."""
    least = run.fail_on.rank
    for report in run.hosts:
        if any(fails(report, least)):
            yield report.host, reason_text(run.id, troubles_of(run, report))


def fails(report: HostReport, least: int) -> Iterator[str]:
    """The checks that fail on a host with a severity of rank `least` or above."""
    for finding in report.findings:
        if finding.verdict is Verdict.FAIL and finding.severity.rank >= least:
            yield finding.check


def _planned(
    failing: Iterable[tuple[str, str]], nodes: Mapping[str, ControllerNode], limits: DrainLimits
) -> Iterator[NodePlan]:
    room = max(1, int(limits.share * len(nodes))) - sum(
        node.is_drained and node.own_reason is not None for node in nodes.values()
    )
    serving = Counter(
        part for node in nodes.values() if not node.is_out for part in node.partitions
    )
    for host, reason in failing:
        node = next((nodes[name] for name in names_in_slurm(host) if name in nodes), None)
        if node is None:
            yield NodePlan(host, reason, UNKNOWN_NODE)
            continue
        short = [part for part in node.partitions if serving[part] <= limits.keep]
        why = why_not_drained(node, reason)
        if why or node.is_out:
            yield NodePlan(node.name, reason, why)
        elif room < 1:
            yield NodePlan(node.name, reason, "--max-drain is reached", is_short=True)
        elif short:
            last = f"one of the last {limits.keep} of partition {short[0]}"
            yield NodePlan(node.name, reason, last, is_short=True)
        else:
            room -= 1
            serving.subtract(node.partitions)
            yield NodePlan(node.name, reason)


def names_in_slurm(host: str) -> tuple[str, ...]:
    """The names that a host may have in Slurm: its own name, and that without the domain."""
    return tuple(dict.fromkeys((host, host.partition(".")[0])))


def _unproven(
    run: Run, report: HostReport, node: ControllerNode, before: str | None, ahead: float
) -> str:
    """Why a run does not prove that a node is repaired; "" if it does."""
    own = node.own_reason
    if node.is_unknown:
        return STARTING
    if own is None or report.status is not Status.VETTED:
        return f"it was not vetted: {brief(report.why_unjudged)}"
    drained, read = seconds_of(node.since), seconds_of(report.arrived or run.started)
    if drained is None or read is None or read <= drained - ahead:
        return "the run read it before it was drained"
    if failing := next(fails(report, run.fail_on.rank), ""):
        return f"{failing} fails"
    if unproven := next((check for check in own.checks if not _passes(report, check)), ""):
        return f"{unproven} is not ok"
    is_same = before is not None and before == report.machine_id
    if (is_same and own.whole) or report.outcome in (HostOutcome.OK, HostOutcome.WAIVED):
        return ""
    part = (
        "its reason does not name every check"
        if is_same
        else "it may not be the machine that was drained"
    )
    return f"{part}, and not every check is ok"


def _passes(report: HostReport, check: str) -> bool:
    verdicts = {finding.verdict for finding in report.findings if finding.check == check}
    verdicts |= {row.verdict for row in report.counted or () if row.check == check}
    return check == VISIT or (Verdict.OK in verdicts and verdicts.issubset(PASSING))
