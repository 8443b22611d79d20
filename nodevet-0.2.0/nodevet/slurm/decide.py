"""Which nodes are drained or resumed, and which are left as they are, and why. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from nodevet.base.age import seconds_of
from nodevet.base.printable import brief
from nodevet.model import HostOutcome, HostReport, Run, Status, Verdict
from nodevet.slurm.nodes import ControllerNode
from nodevet.slurm.reason import PLAN, VISIT, parse, reason_text, troubles_of

BUSY = "jobs run on it: the next look after they end drains it"
MAINTAINED = "it is in maintenance: the next look after that drains it"
UNKNOWN_NODE = "Slurm has no node of this name"
PASSING = (Verdict.OK, Verdict.WAIVED, Verdict.NOT_APPLICABLE)


class DrainLimits(NamedTuple):
    """How much of a cluster one run may take out of service."""

    share: float  # of all nodes that nodevet may have drained, earlier runs included; at least one
    keep: int  # nodes of each partition that stay in service


class NodePlan(NamedTuple):
    """What is done with one node."""

    node: str
    reason: str  # to drain it with; of a node that is resumed: why it was drained
    why_not: str = ""  # why it is left as it is; empty: it is drained or resumed
    is_short: bool = False  # left only for a limit


def left_alone(node: ControllerNode, reason: str, *, will_look_again: bool = False) -> str:
    """Why this node is not drained with this reason; "" if it is. `will_look_again`: its jobs, and
    a maintenance, can end first."""
    own, wished = node.own, parse(reason)
    if node.is_foreign:
        by = f" by {brief(node.user)}" if node.user else ""
        return f"its reason stays: {brief(node.reason)!r}{by}"
    if node.is_drained and own and wished and own.checks == wished.checks:
        return f"it is drained for this already: {node.reason}"
    if not will_look_again or node.is_drained:
        return ""
    if node.has_jobs:
        return BUSY
    return MAINTAINED if node.is_maintained else ""


def plan_drain(
    run: Run, nodes: Mapping[str, ControllerNode], limits: DrainLimits
) -> list[NodePlan]:
    """What is done with each host that fails in a run, in its order."""
    return list(_planned(_failing(run), nodes, limits))


def plan_resume(
    run: Run,
    nodes: Mapping[str, ControllerNode],
    machines: Mapping[tuple[str, str], str | None],
    of_plans: Collection[str] = (),
) -> list[NodePlan]:
    """What is done with each node that nodevet drained. `machines`: machine ids by run and host.
    `of_plans`: the ids of plans for which apply drained nodes that are resumed, too."""
    reports = {name: report for report in run.hosts for name in names_in_slurm(report.host)}
    plans = []
    for node in nodes.values():
        if node.is_drained and (own := node.own):
            report = reports.get(node.name)
            before = machines.get((own.run, report.host)) if report else None
            why = _kept_for_plan(own.run, of_plans)
            if report is None:
                why = why or "it is not in the run"
            else:
                why = why or _unproven(run, report, node, before)
            plans.append(NodePlan(node.name, node.reason, why))
    return plans


def _kept_for_plan(run: str, plans: Collection[str]) -> str:
    """Why a node stays drained that apply may be at work on; "" if it is not so."""
    plan = run.removeprefix(PLAN)
    if plan == run or plan in plans:
        return ""
    return f"apply drained it for plan {plan}; if no run of that plan goes on: resume --plan {plan}"


def _failing(run: Run) -> Iterator[tuple[str, str]]:
    """The hosts that fail, each with its reason."""
    least = run.fail_on.rank
    for report in run.hosts:
        if any(fails(report, least)):
            yield report.host, reason_text(run.id, troubles_of(run, report))


def fails(report: HostReport, least: int) -> Iterator[str]:
    """The checks that fail on a host at a severity of at `least` this rank."""
    for finding in report.findings:
        if finding.verdict is Verdict.FAIL and finding.severity.rank >= least:
            yield finding.check


def _planned(
    failing: Iterable[tuple[str, str]], nodes: Mapping[str, ControllerNode], limits: DrainLimits
) -> Iterator[NodePlan]:
    room = max(1, int(limits.share * len(nodes))) - sum(
        node.is_drained and node.own is not None for node in nodes.values()
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
        why = left_alone(node, reason)
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
    """The names that a host may have in Slurm: its own, and without the domain."""
    return tuple(dict.fromkeys((host, host.partition(".")[0])))


def _unproven(run: Run, report: HostReport, node: ControllerNode, before: str | None) -> str:
    """Why a run does not prove that a node is repaired; "" if it does."""
    own = node.own
    if own is None or report.status is not Status.VETTED:
        return f"it was not vetted: {brief(report.told)}"
    drained, read = seconds_of(node.since), seconds_of(report.arrived or run.started)
    if drained is None or read is None or read <= drained:
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
        else "it may be another machine than the drained one"
    )
    return f"{part}, and not all of it is ok"


def _passes(report: HostReport, check: str) -> bool:
    verdicts = {finding.verdict for finding in report.findings if finding.check == check}
    verdicts |= {each.verdict for each in report.counted or () if each.check == check}
    return check == VISIT or (Verdict.OK in verdicts and verdicts.issubset(PASSING))
