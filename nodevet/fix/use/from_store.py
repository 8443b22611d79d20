"""What the store knows that keeps a fix out of a plan: failures, and suspected checks."""

from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from nodevet.fix.journal import journal
from nodevet.fix.journal.attempts import Failure
from nodevet.fix.plan.candidates import Suspected
from nodevet.fix.rollout.limits import FAILURES
from nodevet.fixing.result import Outcome
from nodevet.settings import SiteSettings, settings
from nodevet.store.records.model import BegunTogether
from nodevet.vet.suspicion import is_beyond_chance
from nodevet.vet.use.stores import asked_store
from nodevet.vet.use.sweep_order import budget_of


def failed_elsewhere(store: str | None, runs: Path, since: datetime) -> tuple[Failure, ...]:
    """Failures since a time, without those whose journal is in `runs`. Raises UserError."""
    runs_path = runs.resolve()
    with asked_store(store, fixes=True) as history:
        if history is None:
            return ()
        outcomes = [outcome.value for outcome in FAILURES]
        return tuple(
            Failure(
                run=failure.folder,
                host=failure.host,
                fix=failure.fix,
                machine_id=failure.machine_id,
            )
            for failure in history.failed_fixes(
                outcomes, after=since.isoformat(), in_doubt=Outcome.UNKNOWN.value
            )
            if not _is_read(Path(failure.folder), runs_path)
        )


def _is_read(folder: Path, runs: Path) -> bool:
    """Whether the run's journal is among the project's own."""
    return folder.parent == runs and (folder / journal.NAME).is_file()


def suspected_checks(store: str | None, checks: Collection[str]) -> tuple[Suspected, ...]:
    """The suspected checks, from the store; empty without a store. Raises UserError."""
    if not checks:
        return ()
    with asked_store(store) as history:
        groups = history.begun_together(checks) if history else ()
    site = settings()
    return tuple(
        Suspected(
            check=group.check,
            still=group.still,
            hosts=group.hosts,
            judged=group.judged,
            on=group.started[:10],
        )
        for group in groups
        if _is_over_budget(group, site)
    )


def _is_over_budget(group: BegunTogether, site: SiteSettings) -> bool:
    budget = budget_of(site, group.series)
    return budget is not None and is_beyond_chance(
        group.hosts, group.judged, budget.percent, budget.hosts
    )
