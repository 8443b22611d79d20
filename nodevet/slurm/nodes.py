"""Parses `scontrol show node -o`, the nodes as Slurm knows them, with times in UTC. Pure."""

import re
from collections import Counter
from typing import NamedTuple

from nodevet.evidence.slurm import states_of
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
    since: str = ""  # when, by the clock of Slurm's controller: 2026-11-24T17:01:24Z
    has_jobs: bool = False
    partitions: tuple[str, ...] = ()
    written: str = ""  # the reason, with the tags of a site

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
    def is_unknown(self) -> bool:
        """Whether Slurm's controller has just started, and waits for the node's daemon. Slurm 22.05
        resumes such a node, and says that it did not."""
        return "unknown" in self.states

    @property
    def own_reason(self) -> DrainReason | None:
        """Its reason if nodevet gave it."""
        return parse(self.reason) if self.reason.startswith(PREFIX) else None

    @property
    def hides_reason(self) -> bool:
        """Whether Slurm drained it since its prolog failed, and does not say why that failed."""
        return self.is_drained and self.reason == PROLOG_ERROR

    @property
    def is_foreign(self) -> bool:
        """Whether someone else gave a reason that nodevet must not replace. A node in service has
        none: Slurm 24.11 still shows the old reason after a node is resumed."""
        is_held = self.is_drained or self.is_rebooting or not OUT.isdisjoint(self.states)
        return is_held and bool(self.reason) and self.own_reason is None and not self.hides_reason


def parse_nodes(text: str) -> dict[str, ControllerNode]:
    """The nodes by name. A reason or a comment may hold anything, even further lines that look like
    nodes. So a name that occurs twice is omitted: a person may have written one of the two."""
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
    if reason.startswith(PREFIX):
        reason, text = REBOOTED.sub("", reason), REBOOTED.sub("", text)
    return ControllerNode(
        name=values["NodeName"],
        states=states,
        reason=reason,
        user=user,
        since=since,
        has_jobs=values.get("CPUAlloc", "0") != "0" or not WORKING.isdisjoint(states),
        partitions=tuple(filter(None, values.get("Partitions", "").split(","))),
        written=text,
    )


def _reason(written: str) -> tuple[str, str, str]:
    """The reason, who gave it and when, from the text that people wrote. If another text of theirs
    may be a part of the reason, all of it counts as the reason, so that it is never nodevet's.

    >>> _reason("Reason=bad [bob@2026-11-24T17:01:24] Comment=x")
    ('bad', 'bob', '2026-11-24T17:01:24Z')
    >>> _reason("Comment=a Reason=nodevet:local xid")
    ('Reason=nodevet:local xid', '', '')
    """
    text = written.removeprefix("Reason=")
    if text == written:
        return written[written.find("Reason=") :].strip() if "Reason=" in written else "", "", ""
    stamp = STAMP.search(text)
    if stamp and ENDED.match(text, stamp.end()):
        return text[: stamp.start()], stamp[1], f"{stamp[2]}Z"
    return text.strip(), "", ""
