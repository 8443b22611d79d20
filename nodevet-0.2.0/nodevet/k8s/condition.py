"""NodevetPassed: the condition that shows the verdict about a node. Pure.

True: the node passed. False: a check fails. Unknown: nodevet has not vetted the node or could not
judge everything, or the verdict is too old or belongs to another boot or another machine. The
heartbeat is the time at which nodevet read the node, not the time of writing, so the age of the
heartbeat is the age of the verdict.

The message of a condition has a part for each failing check. A part begins with the check and the
parts of the node: `power_limit (GPU 0-7): 490 W, expected 700 W`. It is new if the previous message
does not have it.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import UNSET, Struct
from msgspec.structs import replace

from nodevet.base.age import AHEAD, instant, seconds_of
from nodevet.base.durations import coarse
from nodevet.base.printable import brief
from nodevet.inventory.cluster_objects import ClusterNode, NodeCondition
from nodevet.model import HostReport, Run, Status, exit_code
from nodevet.vet.findings.fold import Line, lines

TYPE = "NodevetPassed"
COMPONENT = "nodevet"
LONGEST = 12_000  # characters of a message, which every GET of the node transfers
LONGEST_PART = 300
LONGEST_NAME = 253  # characters of the name of an object
SEPARATOR = "; "
BOOT = re.compile(r", in boot [0-9a-f]{8}\Z")
STATUS = {0: "True", 1: "False", 3: "Unknown"}  # by exit code
REASON = {0: "AsExpected", 1: "NotAsExpected", 3: "NotJudged"}
UNTRIED = frozenset({Status.NOT_VISITED, Status.INTERRUPTED, Status.UNREADABLE})
"""Statuses of visits that say nothing about the node."""


class NodeVerdict(Struct, frozen=True, kw_only=True):
    """The content of the condition."""

    status: str
    reason: str
    message: str
    read_s: float | None  # when nodevet read the node, seconds since 1970; None: never

    @property
    def parts(self) -> tuple[str, ...]:
        """The failing or unknown checks that the message names."""
        return _parts(self.reason, self.message)


class WrittenCondition(NamedTuple):
    """The condition that nodevet wrote to one node, or why it wrote none."""

    node: str
    status: str = ""
    message: str = ""
    why_not: str = ""  # why nodevet wrote nothing
    is_short: bool = False  # whether writing failed


def verdict_of(
    run: Run, report: HostReport, node: ClusterNode, *, now: float, most: float
) -> NodeVerdict:
    """The verdict of a run about a node. `most`: the age, in seconds, above which it is too old."""
    read = seconds_of(report.arrived or run.started)
    if why := _distrusted(report, node):
        return unknown("OtherMachine", why, read)
    if read is None:
        return unknown("Stale", "the verdict has no valid time", None)
    if not is_recent(read, now, most):
        return stale(read, now)
    code = exit_code([report], run.fail_on)
    if code == 0 and node.status.node_info.boot_id and not report.boot_id:
        return unknown("OtherMachine", "the verdict has no boot id", read)
    if code == 0:
        named = brief(report.baseline) or "its baseline"
        passed = f"as {named} expects{_in_boot(report.boot_id)}"
        return NodeVerdict(status=STATUS[0], reason=REASON[0], message=passed, read_s=read)
    message = _joined(_part(line) for line in lines_of(run, report))
    return NodeVerdict(
        status=STATUS[code], reason=REASON[code], message=message or "not judged", read_s=read
    )


def stale(read: float | None, now: float) -> NodeVerdict:
    """The verdict about a node that nodevet read too long ago, at `read`, or never."""
    if read is None:
        return unknown("NeverVetted", "nodevet has not vetted this node", None)
    if read > now + AHEAD:
        return unknown("Stale", "the verdict is dated in the future: a clock is wrong", None)
    return unknown("Stale", f"last vetted {coarse(now - read)} ago", read)


def unknown(reason: str, message: str, read: float | None) -> NodeVerdict:
    """A verdict that says nothing about the node."""
    return NodeVerdict(status="Unknown", reason=reason, message=message, read_s=read)


def is_recent(read: float, now: float, most: float) -> bool:
    """Whether `read` is at most `most` seconds before `now`. The clocks may differ a little."""
    return -AHEAD <= now - read <= most


def is_of_other_boot(condition: NodeCondition, node: ClusterNode) -> bool:
    """Whether the condition names another boot than the current one of the node."""
    found, now = BOOT.search(condition.message), _in_boot(node.status.node_info.boot_id)
    return bool(found and now and found[0] != now)


def is_newer(old: NodeCondition | None, verdict: NodeVerdict, now: float) -> bool:
    """Whether the condition comes from a later visit than the verdict."""
    beat = heartbeat(old)
    return beat is not None and verdict.read_s is not None and verdict.read_s < beat <= now + AHEAD


def heartbeat(condition: NodeCondition | None) -> float | None:
    """When nodevet read the node, seconds since 1970; None if the condition does not say so."""
    return seconds_of(condition.last_heartbeat_time or "") if condition else None


def condition_of(verdict: NodeVerdict, old: NodeCondition | None, now: float) -> dict[str, str]:
    """The condition for the API. The transition time changes only with the status."""
    is_same = old is not None and old.status == verdict.status and old.last_transition_time
    times = {"lastTransitionTime": old.last_transition_time if old and is_same else _time(now)}
    if verdict.read_s is not None:
        times["lastHeartbeatTime"] = _time(verdict.read_s)
    return {
        "type": TYPE,
        "status": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message,
        **{key: value for key, value in times.items() if value},
    }


def events_of(
    verdict: NodeVerdict, old: NodeCondition | None, node: ClusterNode, run: str, now: float
) -> list[dict[str, Any]]:
    """An event for each new part of the condition. The node, the run and the part determine its
    name, so reporting a run twice adds no event."""
    known = set(map(_key, _parts(old.reason, old.message))) if old else set()
    if old and old.status != verdict.status == STATUS[1]:
        known = set()  # what was unknown fails now
    new = [part for part in verdict.parts if _key(part) not in known]
    return [_event(part, verdict, node, run, now) for part in new]


def lines_of(run: Run, report: HostReport) -> list[Line]:
    """The failures of a host, the worst first; without failures, its unknown findings."""
    alone = replace(run, hosts=(report,), news=UNSET)
    counting = [line for line in lines(alone) if line.fails and line.label != "WAIVED"]
    return [line for line in counting if line.label == "FAIL"] or counting


def _distrusted(report: HostReport, node: ClusterNode) -> str:
    """Why the report does not describe this boot of this node; "" if it does."""
    info = node.status.node_info
    if _differ(report.machine_id, info.machine_id):
        return "the verdict belongs to a machine with another machine-id"
    if _differ(report.boot_id, info.boot_id):
        return "the verdict belongs to another boot"
    return ""


def _in_boot(boot_id: str | None) -> str:
    """The end of the message about a pass; "" if the boot is unknown.

    >>> _in_boot("1c9d0a55-8b1e-4c0e-9a52-3f0a6d1b7c11")
    ', in boot 1c9d0a55'
    """
    text = f", in boot {(boot_id or '')[:8].lower()}"
    return text if BOOT.match(text) else ""


def _differ(ours: str | None, theirs: str) -> bool:
    """Whether both ids are known and they differ."""
    first, second = (text.replace("-", "").strip().lower() for text in (ours or "", theirs))
    return bool(first and second) and first != second


def _part(line: Line) -> str:
    """One part of a message.

    >>> _part(Line(label="FAIL", check="xid", what="79; lost", subjects="GPU 3"))
    'xid (GPU 3): 79, lost'
    """
    where = f" ({line.subjects})" if line.subjects else ""
    kind = "" if line.label == "FAIL" else f"{line.label.lower()}, "
    name = (line.checks or ("visit",))[0] + where
    text = f"{name.replace(': ', ' ')}: {kind}{line.what}"
    return brief(text.replace(";", ","), LONGEST_PART)


def _joined(parts: Iterable[str]) -> str:
    """The parts as one message; `...` stands for parts that do not fit."""
    text = ""
    for part in parts:
        longer = f"{text}{SEPARATOR if text else ''}{part}"
        if len(longer) > LONGEST:
            return f"{text}{SEPARATOR}..."
        text = longer
    return text


def _parts(reason: str, message: str) -> tuple[str, ...]:
    has_parts = reason in (REASON[1], REASON[3])
    return tuple(part for part in message.split(SEPARATOR) if ": " in part) if has_parts else ()


def _key(part: str) -> str:
    """The check and the parts of the node, without the values: `power_limit (GPU 0-7)`."""
    return part.partition(": ")[0]


def _time(seconds: float) -> str:
    return instant(seconds).replace("+00:00", "Z")


def _event(
    part: str, verdict: NodeVerdict, node: ClusterNode, run: str, now: float
) -> dict[str, Any]:
    mark = hashlib.sha256(f"{run} {_key(part)}".encode()).hexdigest()[:16]
    name = f"{node.name[: LONGEST_NAME - len(mark) - 1].rstrip('.-')}.{mark}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},  # the namespace for objects without one
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node.name,
            "uid": node.metadata.uid,
        },
        "type": "Warning",
        "reason": f"Nodevet{verdict.reason}",
        "message": part,
        "source": {"component": COMPONENT, "host": node.name},
        "reportingComponent": COMPONENT,
        "reportingInstance": node.name,
        "firstTimestamp": _time(now),
        "lastTimestamp": _time(now),
        "count": 1,
    }


def why_untried(report: HostReport) -> str:
    """Why the report says nothing about its node; "" if it says something."""
    return report.told if report.status in UNTRIED else ""
