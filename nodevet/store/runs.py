"""Runs: list them, find one by a name, begin or resume one, and see whether its process lives."""

import os
import re
import socket
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, insert, or_, select, update

from nodevet.base import age, typed
from nodevet.base.problems import did_you_mean
from nodevet.model import HostOutcome, Severity
from nodevet.store import schema as t
from nodevet.store.errors import StoreError, StoreHeldError
from nodevet.store.moments import DAY, instant
from nodevet.store.records.model import RecordedRun, RunState
from nodevet.store.rows import encoded, next_id, plain
from nodevet.store.urls import url_text

BEAT = 30.0  # seconds between two signs of life of the process that records a run
QUIET = 300.0  # seconds of silence after which a process of another machine counts as gone
_RUNS = select(t.run, (t.epoch() - t.run.c.touched).label("quiet"))
_LAST = re.compile(r"last(?:~(\d{1,6}))?")


def _newest_first(series: str | None) -> Select[Any]:
    """By the order of records, since the clock of a controller may have been set back."""
    query = _RUNS.order_by(t.run.c.id.desc())
    return query if series is None else query.where(t.run.c.series == plain(series))


def list_runs(
    connection: Connection,
    *,
    series: str | None,
    limit: int | None,
    before: str | None,
    after: str | None,
) -> list[RecordedRun]:
    query = _newest_first(series)
    if before is not None:
        query = query.where(t.run.c.id < id_of(before).scalar_subquery())
    if after is not None:
        query = query.where(t.run.c.started >= instant(after))
    if limit is not None:
        query = query.limit(limit)
    return [run_of(row) for row in connection.execute(query)]


def refuse_running(connection: Connection, series: str) -> None:
    """Raises StoreHeldError if a run of this sweep goes on."""
    query = _newest_first(series).where(t.run.c.state == RunState.RUNNING.value)
    for row in connection.execute(query):
        if (run := run_of(row)).state is RunState.RUNNING:
            host, pid, _ = row.owner.rsplit(" ", 2)
            raise StoreHeldError(
                f"{series} is being swept by process {pid} on {host}, since {run.started} "
                f"({run.id} in {url_text(connection.engine.url)}); if that one is gone, wait "
                f"{QUIET / 60:g} minutes, or: --no-lock"
            )


def find_run(connection: Connection, ref: str, series: str | None = None) -> RecordedRun:
    """The run of a name; see Store.run. Raises StoreError."""
    query = _newest_first(series)
    if match := _LAST.fullmatch(ref):
        query = query.offset(int(match[1] or 0)).limit(1)
        hint = "`nodevet runs` lists what was recorded"
    elif DAY.fullmatch(ref):
        start = instant(ref)
        query = query.where(t.run.c.started >= start, t.run.c.started < start + 86400.0).limit(1)
        hint = "`nodevet runs` lists what was recorded, each with its day"
    else:
        exact = t.run.c.name == plain(ref)
        begins = t.run.c.name.startswith(plain(ref), autoescape=True)
        query = query.where(or_(exact, begins)).limit(20)
        hint = (
            "name a run by its id, `last`, `last~1` or its day, such as 2026-11-16; "
            "`nodevet runs` lists them"
        )
    store = url_text(connection.engine.url)
    rows = connection.execute(query).all()
    if not rows:
        names = connection.execute(select(t.run.c.name)).scalars().all()
        raise StoreError(f"{store}: no run {ref!r}{did_you_mean(ref, names)}; {hint}")
    exact_rows = [row for row in rows if row.name == ref]
    if len(rows) > 1 and not exact_rows:
        matches = ", ".join(row.name for row in rows[:4])
        raise StoreError(f"{store}: {ref!r} is the beginning of several runs: {matches}")
    return run_of((exact_rows or rows)[0])


def last_reported(connection: Connection, before: str, series: str | None) -> RecordedRun | None:
    """See Store.last_reported."""
    query = _RUNS.where(t.run.c.exit_code.is_not(None), t.run.c.name != before)
    if series is not None:
        query = query.where(t.run.c.series == plain(series))
    number = connection.execute(id_of(before)).scalar()
    if number is not None:
        query = query.where(t.run.c.id < number)
    row = connection.execute(query.order_by(t.run.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else run_of(row)


def begin(connection: Connection, run: RecordedRun) -> int:
    """Record a run that begins now, and return its row's id."""
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


def resume(connection: Connection, ref: str) -> tuple[int, RecordedRun]:
    """Make this process record a run that did not end; return the id of its row, and the run.

    Raises StoreError if another process still records it, or if it is complete.
    """
    run = find_run(connection, ref)
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


def this_process() -> str:
    """`HOST PID START`, since the kernel reuses process ids."""
    return f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}"


def is_gone(owner: str, quiet: float) -> bool:
    """Whether the process that records a run has ended; on another machine, whether it has been
    quiet for more than QUIET seconds."""
    host, pid, start = owner.rsplit(" ", 2)
    if host != socket.gethostname():
        return quiet > QUIET
    return _started(int(pid)) != start


def _started(pid: int) -> str:
    """When a process began: field 22 of /proc/PID/stat, in ticks since boot; `-` if it has
    ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "-"
    return text.rpartition(")")[2].split()[19]
