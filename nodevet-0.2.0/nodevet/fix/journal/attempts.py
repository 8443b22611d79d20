"""Recent failures of fixes on nodes, from the journals of the project's runs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from nodevet.fix.journal import journal
from nodevet.fix.journal.records import (
    HostBegin,
    HostEnd,
    JournalError,
    JournalRecord,
    RunBegin,
    StepFailed,
)
from nodevet.fix.moments import parse_time
from nodevet.fix.rollout.limits import FAILURES

MOST = 2  # failures on one node after which a fix is not planned again by itself


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A fix failed on a node in a run."""

    run: str  # name of its folder
    host: str
    fix: str
    machine_id: str = ""  # of the node then; empty if the journal does not say


def recent_failures(
    runs: Path, now: datetime, window: timedelta
) -> tuple[tuple[Failure, ...], tuple[str, ...]]:
    """The failures within `window` before `now` of all runs in a folder, and problems in words.
    Skips runs whose journal was last written before that time."""
    result: list[Failure] = []
    problems: list[str] = []
    since = now - window
    try:
        folders = sorted(path for path in runs.iterdir() if path.is_dir())
    except FileNotFoundError:
        return (), ()
    except OSError as error:
        return (), (f"{runs}: cannot be read: {error.strerror}",)
    for folder in folders:
        file = folder / journal.NAME
        try:
            if file.stat().st_mtime < since.timestamp():
                continue
            records = journal.read(file)
        except OSError as error:
            problems.append(f"{file}: cannot be read: {error.strerror}")
        except JournalError as error:
            problems.append(str(error))
        else:
            result += failures(records, folder.name, since)
    return tuple(result), tuple(problems)


def failures(records: Iterable[JournalRecord], run: str, since: datetime) -> Iterator[Failure]:
    """The failures in a run since a time: each fix of each node once, over all tries."""
    kind, machines, reported = "apply", dict[str, str](), set[tuple[str, str]]()
    for record in records:
        if isinstance(record, RunBegin):
            kind = record.kind
        elif isinstance(record, HostBegin):
            machines[record.host] = record.machine_id
        if kind != "apply" or _is_before(record.at, since):
            continue
        for host, fix in _failed_steps(record):
            if (host, fix) not in reported:
                reported.add((host, fix))
                yield Failure(run=run, host=host, fix=fix, machine_id=machines.get(host, ""))


def _failed_steps(record: JournalRecord) -> Iterator[tuple[str, str]]:
    """(host, fix) of each step that a record says has failed."""
    ids: Sequence[str] = ()
    if isinstance(record, StepFailed):
        ids = (record.step,)
    elif isinstance(record, HostEnd):
        failed_outcomes = {outcome.value for outcome in FAILURES}
        ids = [step.id for step in record.steps if step.outcome in failed_outcomes]
    for id in ids:
        host, fix, _ = id.rsplit("/", 2) if id.count("/") == 2 else ("", "", "")
        if host:
            yield host, fix


def _is_before(at: str, since: datetime) -> bool:
    """Whether a record was written before a time; False for a record without a valid time."""
    time = parse_time(at)
    return time is not None and time < since


def runs_with_failure(
    known_failures: Iterable[Failure], host: str, fix: str, machine_id: str
) -> tuple[str, ...]:
    """The runs in which a fix failed on this very node, whatever the inventory called it then;
    empty if fewer than MOST."""
    runs = dict.fromkeys(
        failure.run
        for failure in known_failures
        if failure.fix == fix and _is_node(failure, host, machine_id)
    )
    return tuple(runs) if len(runs) >= MOST else ()


def _is_node(failure: Failure, host: str, machine_id: str) -> bool:
    if failure.machine_id and machine_id:
        return failure.machine_id == machine_id
    return failure.host == host and not failure.machine_id
