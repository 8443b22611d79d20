"""How a run of fixes stands, read from its folder: while it goes on, after it ended, or was killed.

Nothing is locked and nothing is written.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.fix.journal import journal, owner
from nodevet.fix.journal.folder import RunFolder
from nodevet.fix.journal.journal import JournalError
from nodevet.fix.journal.records import RunBegin, RunEnd
from nodevet.fix.standing import RunStatus, of_records, seconds_since
from nodevet.fix.use.fix_run import inventories_of


def status(folder: Path) -> RunStatus:
    """How the run in this folder stands. Raises RunError, PlanError and JournalError."""
    run = RunFolder(folder)
    file = folder / journal.NAME
    _, plan = run.plan()
    records = journal.read(folder)
    result = run.account(records)
    begun = [record for record in records if isinstance(record, RunBegin)][-1]
    found = of_records(folder, plan, records, result, owner.controller(file, begun))
    expired = (seconds_since(plan.expires) or 0.0) > 0
    return replace(found, inventories=tuple(inventories_of(run)), expired=expired)


def newest(runs: Path) -> tuple[Path, tuple[Path, ...]]:
    """The run in this folder that was begun or gone on with last, and the others, newest first.

    Raises UserError if there is none.
    """
    found = []
    for file in runs.glob(f"*/{journal.NAME}"):
        try:
            found.append((file.stat().st_mtime, file.parent))
        except OSError:  # it was removed meanwhile
            continue
    if not found:
        raise UserError(f"{runs}: no run is kept there; name the folder of one")
    first, *others = [folder for _, folder in sorted(found, reverse=True)]
    return first, tuple(others)


def unfinished(folders: Sequence[Path], most: int = 20) -> list[Path]:
    """Those of the newest runs whose journal has no end."""
    found = []
    for folder in folders[:most]:
        try:
            records = journal.read(folder)
        except JournalError:
            continue
        if not (records and isinstance(records[-1], RunEnd)):
            found.append(folder)
    return found
