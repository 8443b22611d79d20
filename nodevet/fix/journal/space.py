"""How much of the controller's disk a run may take, checked before it writes anything."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nodevet.fix.journal.records import LONGEST_OUTPUT
from nodevet.fix.model import Plan, Step
from nodevet.resource import content_sizes

RECORD = 1024  # bytes of a record besides what it holds
LOOKS = 6  # times that a step's touches are written down: before, after, settled, rolled back
PROOF = 8 * 1024  # bytes of what a check said at the end
EVIDENCE = 256 * 1024  # bytes of a node's evidence, of one name
EVIDENCES = 3
CONTENTS = 2  # times a file that a step changes is kept: as it was, and as it is then
REPORTS = 3  # times what the journal holds: nine formats, of which not all show everything


class SpaceError(Exception):
    """The disk has too little space; the message says how much a run may take, and where."""


def node_bytes(steps: Sequence[Step]) -> int:
    """Bytes that one node may take in the journal."""
    checks = {step.fix for step in steps}
    return 4 * RECORD + len(checks) * PROOF + sum(_step_bytes(step) for step in steps)


def _step_bytes(step: Step) -> int:
    states = len(msgspec.json.encode(step.before)) + RECORD * len(step.resources)
    actions = sum(len(msgspec.json.encode(action)) for action in step.all_actions)
    outputs = (2 * LONGEST_OUTPUT + RECORD) * len(step.all_actions)  # some of it is escaped
    return LOOKS * states + actions + outputs + 8 * RECORD


def _content_bytes(step: Step) -> int:
    return max(sum(content_sizes(step.before).values()), len(msgspec.json.encode(step.all_actions)))


def reserve_bytes(plan: Plan, batch: int) -> int:
    """Bytes that the nodes in progress at once need to end well."""
    sizes = sorted((node_bytes(plan.host_steps(host)) for host in plan.nodes), reverse=True)
    return sum(sizes[: max(batch, 1)]) + 4 * RECORD


def needed_bytes(plan: Plan, batch: int) -> int:
    """Bytes for the journal with its reserve, evidence, and reports."""
    journal = sum(node_bytes(plan.host_steps(host)) for host in plan.nodes)
    evidence = len({step.host for step in plan.steps}) * EVIDENCES * EVIDENCE
    contents = CONTENTS * sum(_content_bytes(step) for step in plan.steps)
    return (1 + REPORTS) * (journal + contents) + reserve_bytes(plan, batch) + evidence


def check_space(folder: Path, plan: Plan, batch: int) -> None:
    """Raises SpaceError if the disk of a folder, which need not exist yet, has too little space."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    disk = os.statvfs(place)
    available, need = disk.f_bavail * disk.f_frsize, needed_bytes(plan, batch)
    if available < need:
        raise SpaceError(
            f"{folder}: the run may take {_size_text(need)}, and {_size_text(available)} is free "
            "there: free some space, or name another folder with --run"
        )


def _size_text(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
