"""Newer runs: a resource that a newer run changed no longer belongs to an older run.

Within one boot of a node, the node's uptime tells which run was later; else the controller's clock
does, which may have gone back in between.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from nodevet.fix.journal import journal
from nodevet.fix.journal.folder import RunError, RunFolder
from nodevet.fix.journal.journal import JournalError, JournalState, StepState, state
from nodevet.fix.model import PlanError
from nodevet.resource import Resource

Claims = Mapping[str, Mapping[Resource, str]]
"""Machine id -> resource -> the newest run that needs it."""


class Newer(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of newer runs. `unread`: why folders that may belong to such a run were not
    read.
    """

    claims: Claims = {}
    unread: tuple[str, ...] = ()


def newer_runs_of(run: RunFolder, parents: Sequence[Path] = ()) -> Newer:
    """The resources that runs after this one changed and did not roll back.

    Looks for runs next to this one and in `parents`. Raises JournalError for this run.
    """
    start = _start_time(run.path)
    uptimes = _uptimes(state(journal.read(run.path)))
    claims: dict[str, dict[Resource, str]] = {}
    unread: list[str] = []
    other_runs: list[tuple[str, RunFolder]] = []
    for path in _folders(run.path, (run.path.absolute().parent, *parents)):
        try:
            other_runs.append((_start_time(path), RunFolder(path)))
        except JournalError as error:
            unread.append(str(error))
    for other_start, other_run in sorted(other_runs, key=lambda pair: pair[0]):
        is_later = other_start > start
        try:
            _, plan = other_run.plan()
            run_state = state(journal.read(other_run.path))
        except (RunError, PlanError, JournalError) as error:
            if is_later:
                unread.append(str(error))
            continue
        for step in plan.steps:
            record = run_state.step(step.id)
            if record.touched and _is_newer(record, uptimes, is_later):
                claims_of_machine = claims.setdefault(plan.nodes[step.host].machine_id, {})
                claims_of_machine |= dict.fromkeys(step.resources, other_run.path.name)
    return Newer(claims=claims, unread=tuple(unread))


def _uptimes(run: JournalState) -> Mapping[str, float]:
    """How long each boot of a node had lasted when the run last began to change it, in seconds."""
    uptimes: dict[str, float] = {}
    for step in run.steps.values():
        if step.touched and step.boot_id and step.uptime_s is not None:
            uptimes[step.boot_id] = max(step.uptime_s, uptimes.get(step.boot_id, 0.0))
    return uptimes


def _is_newer(step: StepState, uptimes: Mapping[str, float], is_later: bool) -> bool:
    """Whether a step of another run came after this run. `is_later`: what the controller's clock
    says."""
    uptime = uptimes.get(step.boot_id)
    if uptime is None or step.uptime_s is None or step.uptime_s == uptime:
        return is_later
    return step.uptime_s > uptime


def _folders(excluded: Path, parents: Sequence[Path]) -> Iterator[Path]:
    """Folders with a journal, each once."""
    known_folders = {excluded.resolve()}
    for parent in parents:
        for path in sorted(parent.glob(f"*/{journal.NAME}")):
            folder = path.parent.resolve()
            if folder not in known_folders:
                known_folders.add(folder)
                yield path.parent


def _start_time(folder: Path) -> str:
    """When a run began: ISO 8601 in UTC; empty if it has no record yet. Raises JournalError."""
    records = journal.read(folder, first=True)
    return records[0].at if records else ""
