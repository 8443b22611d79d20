"""How much of the controller's disk a run may take: told before it writes anything."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nodevet.fix.journal.records import LONGEST_OUTPUT
from nodevet.fix.model import Plan, Step
from nodevet.resource import named

RECORD = 1024  # bytes of a record besides what it holds
LOOKS = 6  # times that a step's touches are written down: before, after, settled, rolled back
PROOF = 8 * 1024  # bytes of what a check said at the end
EVIDENCE = 256 * 1024  # bytes of a node's evidence, of one name
EVIDENCES = 3
CONTENTS = 2  # times a file that a step changes is kept: as it was, and as it is then
REPORTS = 3  # times what the journal holds: nine formats, of which not all show everything


class SpaceError(Exception):
    """There is too little; the message says how much is missing, and where."""


def of_node(steps: Sequence[Step]) -> int:
    """Bytes of the journal that one node may take."""
    checks = {step.fix for step in steps}
    return 4 * RECORD + len(checks) * PROOF + sum(_of_step(step) for step in steps)


def _of_step(step: Step) -> int:
    seen = len(msgspec.json.encode(step.before)) + RECORD * len(step.resources)
    actions = sum(len(msgspec.json.encode(each)) for each in step.actions)
    outputs = (2 * LONGEST_OUTPUT + RECORD) * len(step.actions)  # some of it is escaped
    return LOOKS * seen + actions + outputs + 8 * RECORD


def _contents(step: Step) -> int:
    return max(sum(named(step.before).values()), len(msgspec.json.encode(step.actions)))


def reserve(plan: Plan, batch: int) -> int:
    """Bytes with which as many nodes as are in hand at once can be brought to their ends."""
    sizes = sorted((of_node(plan.of(host)) for host in plan.nodes), reverse=True)
    return sum(sizes[: max(batch, 1)]) + 4 * RECORD


def needed(plan: Plan, batch: int) -> int:
    """Bytes for the journal with its reserve, evidence, and reports."""
    journal = sum(of_node(plan.of(host)) for host in plan.nodes)
    evidence = len({step.host for step in plan.steps}) * EVIDENCES * EVIDENCE
    contents = CONTENTS * sum(_contents(step) for step in plan.steps)
    return (1 + REPORTS) * (journal + contents) + reserve(plan, batch) + evidence


def check(folder: Path, plan: Plan, batch: int) -> None:
    """Raises SpaceError if the disk of a folder, which may not be there yet, has too little."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    found = os.statvfs(place)
    free, need = found.f_bavail * found.f_frsize, needed(plan, batch)
    if free < need:
        raise SpaceError(
            f"{folder}: the run may take {_size(need)}, and {_size(free)} is free there: free some "
            "space, or name another folder with --run"
        )


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
