"""Runs in the order in which they began: what a newer one set is no longer an older one's."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from nodevet.fix.journal import journal
from nodevet.fix.journal.folder import RunError, RunFolder
from nodevet.fix.journal.journal import JournalError, state
from nodevet.fix.model import PlanError
from nodevet.resource import Resource

Claims = Mapping[str, Mapping[Resource, str]]
"""Machine id -> touch -> the newest run that needs it."""


class Newer(msgspec.Struct, frozen=True, kw_only=True):
    """What newer runs hold. `unread`: folders that may be of such a run, and why."""

    claims: Claims = {}
    unread: tuple[str, ...] = ()


def newer(run: RunFolder, parents: Sequence[Path] = ()) -> Newer:
    """What the runs that began after this one have set, and that is not rolled back since.

    Runs are looked for beside this one, and in `parents`. Raises JournalError for this run.
    """
    began = _began(run.path)
    claims: dict[str, dict[Resource, str]] = {}
    unread: list[str] = []
    found: list[tuple[str, RunFolder]] = []
    for path in _folders(run.path, (run.path.absolute().parent, *parents)):
        try:
            at = _began(path)
        except JournalError as error:
            unread.append(str(error))
            continue
        if at > began:
            found.append((at, RunFolder(path)))
    for _, other in sorted(found, key=lambda each: each[0]):
        try:
            _, plan = other.plan()
            so_far = state(journal.read(other.path))
        except (RunError, PlanError, JournalError) as error:
            unread.append(str(error))
            continue
        for step in plan.steps:
            if so_far.step(step.id).touched:
                held = claims.setdefault(plan.nodes[step.host].machine_id, {})
                held |= dict.fromkeys(step.resources, other.path.name)
    return Newer(claims=claims, unread=tuple(unread))


def _folders(but: Path, parents: Sequence[Path]) -> Iterator[Path]:
    """Folders with a journal, each once."""
    seen = {but.resolve()}
    for parent in parents:
        for path in sorted(parent.glob(f"*/{journal.NAME}")):
            folder = path.parent.resolve()
            if folder not in seen:
                seen.add(folder)
                yield path.parent


def _began(folder: Path) -> str:
    """When a run began: ISO 8601 in UTC; empty if it has no record yet. Raises JournalError."""
    records = journal.read(folder, first=True)
    return records[0].at if records else ""
