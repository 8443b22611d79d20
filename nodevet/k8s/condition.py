"""The condition of a node that shows its verdict: NodevetPassed. Pure.

True: the node passed. False: something fails. Unknown: nobody vetted it, or the verdict is old, is
of another boot or another machine, or could not judge everything. Its heartbeat is when the node
was read, not when somebody wrote the condition, so its age is the age of the verdict.

The message of a condition has a part for each failing check, which begins with the check and the
parts of the node: `power_limit (GPU 0-7): 490 W, expected 700 W`. A part that the message before
did not have is new.
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
LONGEST = 12_000  # characters of a message: it travels with every look at the node
LONGEST_PART = 300
LONGEST_NAME = 253  # characters of the name of an object
SEPARATOR = "; "
BOOT = re.compile(r", in boot [0-9a-f]{8}\Z")
STATUS = {0: "True", 1: "False", 3: "Unknown"}  # by exit code
REASON = {0: "AsExpected", 1: "NotAsExpected", 3: "NotJudged"}
UNTRIED = frozenset({Status.NOT_VISITED, Status.INTERRUPTED, Status.UNREADABLE})
"""How a visit ended that says nothing of the node."""


class NodeVerdict(Struct, frozen=True, kw_only=True):
    """What the condition says."""

    status: str
    reason: str
    message: str
    read_s: float | None  # when the node was read, seconds since 1970; None: never

    @property
    def parts(self) -> tuple[str, ...]:
        """The failing or unknown checks that the message names."""
        return _parts(self.reason, self.message)


class WrittenCondition(NamedTuple):
    """What became of the condition of one node."""

    node: str
    status: str = ""
    message: str = ""
    why_not: str = ""  # why it was not written
    is_short: bool = False  # whether it should have been written


def verdict_of(
    run: Run, report: HostReport, node: ClusterNode, *, now: float, most: float
) -> NodeVerdict:
    """The verdict of a run about a node. `most`: seconds after which it is too old."""
    read = seconds_of(report.arrived or run.started)
    if why := _distrusted(report, node):
        return unknown("OtherMachine", why, read)
    if read is None:
        return unknown("Stale", "the time of the verdict is not known", None)
    if not is_recent(read, now, most):
        return stale(read, now)
    code = exit_code([report], run.fail_on)
    if code == 0 and node.status.node_info.boot_id and not report.boot_id:
        return unknown("OtherMachine", "the boot of the verdict is not known", read)
    if code == 0:
        named = brief(report.baseline) or "its baseline"
        passed = f"as {named} expects{_in_boot(report.boot_id)}"
        return NodeVerdict(status=STATUS[0], reason=REASON[0], message=passed, read_s=read)
    message = _joined(_part(line) for line in lines_of(run, report))
    return NodeVerdict(
        status=STATUS[code], reason=REASON[code], message=message or "not judged", read_s=read
    )


def stale(read: float | None, now: float) -> NodeVerdict:
    """The verdict about a node that was last read at `read`, too long ago, or never."""
    if read is None:
        return unknown("NeverVetted", "nodevet has not vetted this node", None)
    if read > now + AHEAD:
        return unknown("Stale", "the verdict is of the future: a clock is wrong", None)
    return unknown("Stale", f"last vetted {coarse(now - read)} ago", read)


def unknown(reason: str, message: str, read: float | None) -> NodeVerdict:
    """A verdict that says nothing of the node."""
    return NodeVerdict(status="Unknown", reason=reason, message=message, read_s=read)


def is_recent(read: float, now: float, most: float) -> bool:
    """Whether a node was read at most this long ago, by clocks that may differ a little."""
    return -AHEAD <= now - read <= most


def is_of_other_boot(condition: NodeCondition, node: ClusterNode) -> bool:
    """Whether the node has booted since it passed, as far as the condition says."""
    found, now = BOOT.search(condition.message), _in_boot(node.status.node_info.boot_id)
    return bool(found and now and found[0] != now)


def is_newer(old: NodeCondition | None, verdict: NodeVerdict, now: float) -> bool:
    """Whether the condition is of a later look at the node than the verdict."""
    beat = heartbeat(old)
    return beat is not None and verdict.read_s is not None and verdict.read_s < beat <= now + AHEAD


def heartbeat(condition: NodeCondition | None) -> float | None:
    """When the node was read, seconds since 1970; None if nobody knows."""
    return seconds_of(condition.last_heartbeat_time or "") if condition else None


def condition_of(verdict: NodeVerdict, old: NodeCondition | None, now: float) -> dict[str, str]:
    """The condition as the API takes it. The transition time moves only with the status."""
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
    """An event for each part that the condition did not have before. Its name is of the run and
    the part, so that a repeated report adds none."""
    before = _parts(old.reason, old.message) if old else ()
    known = set(map(_key, before))
    new = [part for part in verdict.parts if _key(part) not in known]
    return [_event(part, verdict, node, run, now) for part in new]


def lines_of(run: Run, report: HostReport) -> list[Line]:
    """What counts against a host, the worst first; failures alone if there are any."""
    alone = replace(run, hosts=(report,), news=UNSET)
    counting = [line for line in lines(alone) if line.fails and line.label != "WAIVED"]
    return [line for line in counting if line.label == "FAIL"] or counting


def _distrusted(report: HostReport, node: ClusterNode) -> str:
    """Why the report is not of this node as it runs now; "" if it is."""
    info = node.status.node_info
    if _differ(report.machine_id, info.machine_id):
        return "the verdict is of a machine with another machine-id"
    if _differ(report.boot_id, info.boot_id):
        return "the verdict is of another boot"
    return ""


def _in_boot(boot_id: str | None) -> str:
    """The end of the message about a pass, if its boot is known.

    >>> _in_boot("1c9d0a55-8b1e-4c0e-9a52-3f0a6d1b7c11")
    ', in boot 1c9d0a55'
    """
    text = f", in boot {(boot_id or '')[:8].lower()}"
    return text if BOOT.match(text) else ""


def _differ(ours: str | None, theirs: str) -> bool:
    """Whether two ids are known and not the same."""
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
    """The parts as one message. Those that do not fit are left out, and it says so."""
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
    """What a part is about, whatever was measured: `power_limit (GPU 0-7)`."""
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
        "metadata": {"name": name, "namespace": "default"},  # of objects without a namespace
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
    """Why the report says nothing of its node; "" if it does."""
    return report.told if report.status in UNTRIED else ""
