"""Which recorded runs are nights of one series, for commands that are not given a run by name."""

from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from nodevet.base.errors import UserError
from nodevet.store.records.model import RecordedRun, RunState

if TYPE_CHECKING:
    from nodevet.store import Store

MOST = 200  # runs that are searched


def usual_series(store: "Store") -> str:
    """The series of the newest sweep; empty if there are only checks by hand."""
    return next((run.series for run in store.runs(limit=MOST) if run.series), "")


def is_whole(run: RecordedRun) -> bool:
    """Whether it visited all its hosts."""
    return run.state is RunState.COMPLETE and run.visited > 0


def night_before(store: "Store", run: RecordedRun) -> RecordedRun | None:
    """The newest whole run before this one, of the same series and hosts; None if there is none."""
    earlier = store.runs(series=run.series, before=run.id, limit=MOST)
    return next(
        (run_before for run_before in earlier if _has_same_hosts(store, run_before, run)), None
    )


def _has_same_hosts(store: "Store", run: RecordedRun, other: RecordedRun) -> bool:
    """Whether `run` is whole and shares more than half of the hosts of both runs."""
    least, most = sorted((run.visited, other.visited))
    if not is_whole(run) or least * 2 <= most:
        return False
    shared = _hosts(store, run) & _hosts(store, other)
    return len(shared) * 2 > most


def _hosts(store: "Store", run: RecordedRun) -> set[str]:
    return {visit.host for visit in store.visits(run.id)}


def last_two(store: "Store") -> tuple[RecordedRun, RecordedRun]:
    """The newest two nights that can be compared, the earlier first. Raises UserError."""
    series = usual_series(store)
    nights = filter(is_whole, store.runs(series=series, limit=MOST))
    for run in islice(nights, MOST):
        if earlier := night_before(store, run):
            return earlier, run
    what = f"runs of {series}" if series else "checks by hand"
    raise UserError(
        f"{store.name}: no two complete {what} visited the same hosts, so there is no night to "
        "compare with; name two: nodevet diff RUN RUN"
    )


def newer(runs: Iterable[RecordedRun], run: RecordedRun) -> Iterator[RecordedRun]:
    """Those recorded after a run, of a list that begins with the newest."""
    return takewhile(lambda newer_run: newer_run.id != run.id, runs)


def last_after(store: "Store", run: RecordedRun) -> RecordedRun:
    """The newest night after a run, of the same series and hosts. Raises UserError."""
    later = newer(store.runs(series=run.series, limit=MOST), run)
    match = next((later_run for later_run in later if _has_same_hosts(store, later_run, run)), None)
    if match is None:
        raise UserError(
            f"{store.name}: no later complete run of its series visited the hosts of {run.id}; "
            "name two: nodevet diff RUN RUN"
        )
    return match
