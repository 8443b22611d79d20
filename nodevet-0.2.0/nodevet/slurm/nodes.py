"""Nodes as Slurm's controller has them: `scontrol show node -o`. Pure."""

import re
from collections import Counter
from typing import NamedTuple

from nodevet.checks.slurm_node import states_of
from nodevet.slurm.reason import PREFIX, PROLOG_ERROR, DrainReason, parse, untagged

DRAINED = frozenset({"drain", "drained", "draining"})
OUT = frozenset({"down", "fail", "failing", "error"})
WORKING = frozenset({"allocated", "mixed", "completing"})
KEY = re.compile(r"(?:^| )(NodeName|State|CPUAlloc|Partitions)=(\S*)")
WRITTEN = re.compile(r" (Reason|Comment|Extra)=")  # by people: the first one ends what Slurm says
REBOOTING = frozenset({"reboot", "reboot_requested", "reboot_issued"})
MAINTENANCE = frozenset({"maint", "maintenance"})
STAMP = re.compile(r" \[([^\]@ ]+)@([0-9T:-]{19})\]")  # who gave a reason, and when
ENDED = re.compile(r"\s*\Z| \w+=")  # what follows the stamp: nothing, or the next key
REBOOTED = re.compile(r"(?: : reboot (?:issued|complete))+$")  # Slurm adds it to a reason


class ControllerNode(NamedTuple):
    """One node."""

    name: str
    states: tuple[str, ...] = ()  # of IDLE+DRAIN: idle, drain
    reason: str = ""  # without the tags of a site if nodevet gave it
    user: str = ""  # who gave the reason
    since: str = ""  # when, by this machine's clock and time zone: 2026-11-24T17:01:24
    has_jobs: bool = False
    partitions: tuple[str, ...] = ()

    @property
    def is_drained(self) -> bool:
        """Whether it takes no further job, though its jobs may still run."""
        return not DRAINED.isdisjoint(self.states)

    @property
    def is_out(self) -> bool:
        """Whether it takes no further job, for any reason."""
        return self.is_drained or self.is_maintained or not OUT.isdisjoint(self.states)

    @property
    def is_maintained(self) -> bool:
        """Whether it is in a maintenance reservation now."""
        return not MAINTENANCE.isdisjoint(self.states)

    @property
    def is_rebooting(self) -> bool:
        """Whether Slurm reboots it, or is about to."""
        return not REBOOTING.isdisjoint(self.states)

    @property
    def own(self) -> DrainReason | None:
        """Its reason if nodevet gave it."""
        return parse(self.reason) if self.reason.startswith(PREFIX) else None

    @property
    def hides_reason(self) -> bool:
        """Whether Slurm drained it since its prolog failed, and does not say why that failed."""
        return self.is_drained and self.reason == PROLOG_ERROR

    @property
    def is_foreign(self) -> bool:
        """Whether someone else has given a reason that must stay. The reason of a node in service
        is over: Slurm 24.11 keeps it when the node is resumed."""
        is_held = self.is_drained or self.is_rebooting or not OUT.isdisjoint(self.states)
        return is_held and bool(self.reason) and self.own is None and not self.hides_reason


def parse_nodes(text: str) -> dict[str, ControllerNode]:
    """The nodes by name; a reason or a comment may hold anything, even further lines. A name that
    occurs twice is left out: one of the two is written by someone."""
    rows = re.split(r"^(?=NodeName=)", text, flags=re.MULTILINE)
    nodes = [_node(row) for row in rows if row.startswith("NodeName=")]
    times = Counter(node.name for node in nodes)
    return {node.name: node for node in nodes if times[node.name] == 1}


def _node(row: str) -> ControllerNode:
    """
    >>> node = _node("NodeName=a State=MIXED+DRAIN Reason=bad [bob@2026-11-24T17:01:24]")
    >>> node.states, node.reason, node.user, node.has_jobs
    (('mixed', 'drain'), 'bad', 'bob', True)
    """
    written = WRITTEN.search(row)
    head, rest = (row[: written.start()], row[written.start() :]) if written else (row, "")
    values = dict(KEY.findall(head))
    states = states_of(values.get("State", ""))
    text, user, since = _reason(rest.lstrip())
    reason = untagged(text)
    return ControllerNode(
        name=values["NodeName"],
        states=states,
        reason=REBOOTED.sub("", reason) if reason.startswith(PREFIX) else reason,
        user=user,
        since=since,
        has_jobs=values.get("CPUAlloc", "0") != "0" or not WORKING.isdisjoint(states),
        partitions=tuple(filter(None, values.get("Partitions", "").split(","))),
    )


def _reason(written: str) -> tuple[str, str, str]:
    """The reason, who gave it and when, of what people wrote. If words of theirs may be a part of
    the reason, they all are, so that it is nobody's but theirs.

    >>> _reason("Reason=bad [bob@2026-11-24T17:01:24] Comment=x")
    ('bad', 'bob', '2026-11-24T17:01:24')
    >>> _reason("Comment=a Reason=nodevet:local xid")
    ('Reason=nodevet:local xid', '', '')
    """
    text = written.removeprefix("Reason=")
    if text == written:
        return written[written.find("Reason=") :].strip() if "Reason=" in written else "", "", ""
    stamp = STAMP.search(text)
    if stamp and ENDED.match(text, stamp.end()):
        return text[: stamp.start()], stamp[1], stamp[2]
    return text.strip(), "", ""
