"""Fixes that failed in runs which are not kept in the project's own folder, by the store."""

from datetime import datetime
from pathlib import Path

from nodevet.fix.journal import journal
from nodevet.fix.journal.attempts import Failure
from nodevet.fix.rollout.limits import FAILURES
from nodevet.fixing.result import Outcome
from nodevet.vet.use.stores import asked_store


def failed_elsewhere(store: str | None, runs: Path, since: datetime) -> tuple[Failure, ...]:
    """Since then; the journals in `runs` tell of their own. Raises UserError."""
    here = runs.resolve()
    with asked_store(store, fixes=True) as history:
        if history is None:
            return ()
        outcomes = [outcome.value for outcome in FAILURES]
        return tuple(
            Failure(run=each.folder, host=each.host, fix=each.fix, machine_id=each.machine_id)
            for each in history.failed_fixes(
                outcomes, after=since.isoformat(), in_doubt=Outcome.UNKNOWN.value
            )
            if not _is_read(Path(each.folder), here)
        )


def _is_read(folder: Path, runs: Path) -> bool:
    """Whether the project's own journals tell of this run."""
    return folder.parent == runs and (folder / journal.NAME).is_file()
