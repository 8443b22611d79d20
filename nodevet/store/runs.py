"""Runs: which there are, what a name for one means, and how one is begun and gone on with."""

import re
import time
from typing import Any

from sqlalchemy import Connection, Select, insert, or_, select, update

from nodevet.base import age, typed
from nodevet.base.problems import did_you_mean
from nodevet.model import HostOutcome, Severity
from nodevet.store import schema as t
from nodevet.store.engine import shown
from nodevet.store.errors import StoreError, StoreHeldError
from nodevet.store.ids import next_id
from nodevet.store.moments import DAY, instant
from nodevet.store.owner import QUIET, is_gone, this_process
from nodevet.store.records.model import RecordedRun, RunState
from nodevet.store.text import encoded, plain

_RUNS = select(t.run, (t.epoch() - t.run.c.touched).label("quiet"))
_LAST = re.compile(r"last(?:~(\d{1,6}))?")


def _newest_first(series: str | None) -> Select[Any]:
    asked = _RUNS.order_by(t.run.c.started.desc(), t.run.c.id.desc())
    return asked if series is None else asked.where(t.run.c.series == plain(series))


def listed(
    connection: Connection,
    *,
    series: str | None,
    limit: int | None,
    before: str | None,
    after: str | None,
) -> list[RecordedRun]:
    asked = _newest_first(series)
    if before is not None:
        asked = asked.where(t.run.c.started < instant(before))
    if after is not None:
        asked = asked.where(t.run.c.started >= instant(after))
    if limit is not None:
        asked = asked.limit(limit)
    return [run_of(row) for row in connection.execute(asked)]


def free(connection: Connection, series: str) -> None:
    """Raises StoreHeldError if a run of this sweep goes on."""
    asked = _newest_first(series).where(t.run.c.state == RunState.RUNNING.value)
    for row in connection.execute(asked):
        if (found := run_of(row)).state is RunState.RUNNING:
            host, pid, _ = row.owner.rsplit(" ", 2)
            raise StoreHeldError(
                f"{series} is being swept by process {pid} on {host}, since {found.started} "
                f"({found.id} in {shown(connection.engine.url)}); if that one is gone, wait "
                f"{QUIET / 60:g} minutes, or: --no-lock"
            )


def named(connection: Connection, ref: str, series: str | None = None) -> RecordedRun:
    """The run that is meant; see Store.run. Raises StoreError."""
    asked = _newest_first(series)
    if found := _LAST.fullmatch(ref):
        asked = asked.offset(int(found[1] or 0)).limit(1)
        hint = "`nodevet runs` lists what was recorded"
    elif DAY.fullmatch(ref):
        begin = instant(ref)
        asked = asked.where(t.run.c.started >= begin, t.run.c.started < begin + 86400.0).limit(1)
        hint = "`nodevet runs` lists what was recorded, each with its day"
    else:
        exact = t.run.c.name == plain(ref)
        begins = t.run.c.name.startswith(plain(ref), autoescape=True)
        asked = asked.where(or_(exact, begins)).limit(20)
        hint = "`nodevet runs` lists what was recorded; `last` is the last run"
    store = shown(connection.engine.url)
    rows = connection.execute(asked).all()
    if not rows:
        names = connection.execute(select(t.run.c.name)).scalars().all()
        raise StoreError(f"{store}: no run {ref!r}{did_you_mean(ref, names)}; {hint}")
    exactly = [row for row in rows if row.name == ref]
    if len(rows) > 1 and not exactly:
        several = ", ".join(row.name for row in rows[:4])
        raise StoreError(f"{store}: {ref!r} is the beginning of several runs: {several}")
    return run_of((exactly or rows)[0])


def last_reported(connection: Connection, before: str, series: str | None) -> RecordedRun | None:
    """See Store.last_reported."""
    asked = _RUNS.where(t.run.c.exit_code.is_not(None), t.run.c.name != before)
    if series is not None:
        asked = asked.where(t.run.c.series == plain(series))
    number = connection.execute(id_of(before)).scalar()
    if number is not None:
        asked = asked.where(t.run.c.id < number)
    row = connection.execute(asked.order_by(t.run.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else run_of(row)


def begin(connection: Connection, run: RecordedRun) -> int:
    """The id of a run that begins now."""
    number = next_id(connection, t.run)
    started = age.seconds_of(run.started)
    connection.execute(
        insert(t.run).values(
            id=number,
            name=run.id,
            series=plain(run.series),
            started=time.time() if started is None else started,
            began=run.started,
            seconds=run.seconds,
            state=RunState.RUNNING.value,
            nodevet=run.nodevet,
            fail_on=run.fail_on.value,
            hosts=run.hosts,
            visited=0,
            outcomes=b"{}",
            owner=this_process(),
            touched=t.epoch(),
            exit_code=run.exit_code,
            baselines=encoded(dict(run.baselines)),
        )
    )
    return number


def take_up(connection: Connection, ref: str) -> tuple[int, RecordedRun]:
    """A run that did not end, with its id; from now on this process records it.

    Raises StoreError for one that another process still records, or that is complete.
    """
    run = named(connection, ref)
    if run.state is RunState.COMPLETE:
        raise StoreError(f"run {run.id} is complete: there is nothing left to visit")
    if run.state is RunState.RUNNING:
        raise StoreError(f"run {run.id} is still being recorded by another process")
    number = int(connection.execute(id_of(run.id)).scalar_one())
    connection.execute(
        update(t.run)
        .where(t.run.c.id == number)
        .values(state=RunState.RUNNING.value, owner=this_process(), touched=t.epoch())
    )
    return number, run


def id_of(name: str) -> Select[Any]:
    return select(t.run.c.id).where(t.run.c.name == name)


def run_of(row: Any) -> RecordedRun:
    state = RunState(row.state)
    if state is RunState.RUNNING and is_gone(row.owner, row.quiet):
        state = RunState.INCOMPLETE
    counts = typed.decode(row.outcomes, dict[str, int])
    return RecordedRun(
        id=row.name,
        series=row.series,
        started=row.began,
        seconds=row.seconds,
        state=state,
        nodevet=row.nodevet,
        fail_on=Severity(row.fail_on),
        hosts=row.hosts,
        visited=row.visited,
        outcomes={HostOutcome(key): count for key, count in counts.items()},
        baselines=typed.decode(row.baselines, dict[str, str]),
        exit_code=row.exit_code,
    )
