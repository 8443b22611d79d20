"""The status of a run of fixes, from its folder: while it runs, after it ended or was killed.

It locks and writes nothing.
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
    """The status of the run in this folder. Raises RunError, PlanError and JournalError."""
    run = RunFolder(folder)
    file = folder / journal.NAME
    _, plan = run.plan()
    records = journal.read(folder)
    result = run.account(records)
    last_begin = [record for record in records if isinstance(record, RunBegin)][-1]
    run_status = of_records(folder, plan, records, result, owner.controller_state(file, last_begin))
    expired = (seconds_since(plan.expires) or 0.0) > 0
    return replace(run_status, inventories=tuple(inventories_of(run)), expired=expired)


def newest_run(runs: Path) -> tuple[Path, tuple[Path, ...]]:
    """The run in this folder that was begun or resumed last, and the others, newest first.

    Raises UserError if there is none.
    """
    runs_by_time = []
    for file in runs.glob(f"*/{journal.NAME}"):
        try:
            runs_by_time.append((file.stat().st_mtime, file.parent))
        except OSError:  # it was removed meanwhile
            continue
    if not runs_by_time:
        raise UserError(f"{runs}: no run is stored there; name the folder of a run")
    first, *others = [folder for _, folder in sorted(runs_by_time, reverse=True)]
    return first, tuple(others)


def unfinished(folders: Sequence[Path], most: int = 20) -> list[Path]:
    """The newest runs whose journal has no end."""
    result = []
    for folder in folders[:most]:
        try:
            records = journal.read(folder)
        except JournalError:
            continue
        if not (records and isinstance(records[-1], RunEnd)):
            result.append(folder)
    return result
