"""Write the history as Parquet files for notebooks and databases, one for each table."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nodevet.base.age import seconds_of
from nodevet.base.errors import UserError
from nodevet.model import HostOutcome
from nodevet.past.redaction import Redactor
from nodevet.store.records.model import Moment, Part

if TYPE_CHECKING:
    import pyarrow

    from nodevet.store import Store

INSTALL = "install it with: pip install 'nodevet[parquet]'"
BATCH = 10_000  # rows that are in memory at once
TEXT, WHOLE, REAL, WHEN, TRUTH = "string", "int64", "float64", "timestamp", "bool"
Row = dict[str, Any]


class ExportTable(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its columns, and the function that yields its rows."""

    columns: str  # their names, separated by spaces
    rows: Callable[["Store", str | None], Iterator[Row]]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    folder: str
    rows: Mapping[str, int]  # table -> rows


def export(
    store: "Store", folder: Path, *, after: str | None = None, redact: bool = False
) -> Exported:
    """Write every table into a folder. Each file of an earlier export is replaced as a whole.

    `after`: only runs from this day on; parts and their places do not depend on it. `redact`:
    without names of the site, see nodevet.past.redaction. Raises UserError without pyarrow, and if
    a file cannot be written.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise UserError(f"Parquet needs pyarrow; {INSTALL}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clean = Redactor(store.hosts()).row if redact else dict
        rows = {
            name: _write(folder / f"{name}.parquet", table, map(clean, table.rows(store, after)))
            for name, table in TABLES.items()
        }
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return Exported(folder=str(folder), rows=rows)


def _write(path: Path, table: ExportTable, rows: Iterator[Row]) -> int:
    """Write one file at once, and return its number of rows."""
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema(
        [(name, _type(TYPES.get(name, TEXT))) for name in table.columns.split()]
    )
    part = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    number = 0
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            os.fdopen(os.open(part, flags, 0o600), "wb") as file,
            parquet.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for batch in _batches(rows):
                number += len(batch)
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return number


def _type(kind: str) -> "pyarrow.DataType":
    import pyarrow

    known = {
        TEXT: pyarrow.string(),
        WHOLE: pyarrow.int64(),
        REAL: pyarrow.float64(),
        TRUTH: pyarrow.bool_(),
        WHEN: pyarrow.timestamp("us", tz="UTC"),
    }
    return known[kind]


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _microseconds(at: str) -> int | None:
    """Microseconds since 1970 UTC."""
    seconds = seconds_of(at)
    return None if seconds is None else round(seconds * 1e6)


def _moment(name: str, moment: Moment | None) -> Row:
    return {
        name: _microseconds(moment.at) if moment else None,
        f"{name}_run": moment.run if moment else None,
    }


def _runs(store: "Store", after: str | None) -> Iterator[Row]:
    for run in reversed(store.runs(after=after)):
        yield {
            "run": run.id,
            "series": run.series,
            "started": _microseconds(run.started),
            "seconds": run.seconds,
            "state": run.state.value,
            "nodevet": run.nodevet,
            "fail_on": run.fail_on.value,
            "hosts": run.hosts,
            "visited": run.visited,
            "exit_code": run.exit_code,
            **{outcome: run.outcomes.get(key, 0) for key, outcome in OUTCOMES.items()},
        }


def _visits(store: "Store", after: str | None) -> Iterator[Row]:
    for run in reversed(store.runs(after=after)):
        for visit in store.visits(run.id):
            yield {
                "run": visit.run,
                "host": visit.host,
                "status": visit.status.value,
                "why": visit.why,
                "outcome": visit.outcome.value,
                "seconds": visit.seconds,
                "arrived": _microseconds(visit.arrived),
                "machine_id": visit.machine_id,
                "boot_id": visit.boot_id,
                "baseline": visit.baseline,
                "groups": ",".join(visit.groups),
            }


def _findings(store: "Store", after: str | None) -> Iterator[Row]:
    for span in store.spans(after=after):
        finding = span.finding
        has_finding = finding is not None
        yield {
            "host": span.host,
            "baseline": span.baseline,
            "check": span.check,
            "key": span.key,
            "subject_kind": finding.subject.kind if finding else None,
            "subject": finding.subject.stable_id if finding else None,
            "verdict": span.verdict.value,
            "severity": span.severity.value,
            "expected": finding.text(finding.expected) if has_finding and finding else None,
            "actual": finding.text(finding.actual) if has_finding and finding else None,
            "why": (finding.why if finding else "") or span.why,
            **_moment("first", span.first),
            **_moment("last", span.last),
            **_moment("since", span.since or span.first),
            **_moment("ended", span.ended),
            "end": span.end.value if span.end else None,
            "after_plan": span.after_plan or None,
        }


def _parts(store: "Store", after: str | None) -> Iterator[Row]:
    for part in store.parts():
        yield {**_part_id(part), "model": part.model, "names": ",".join(part.names)}


def _part_id(part: Part) -> Row:
    return {"part": part.id, "kind": part.kind.value}


def _places(store: "Store", after: str | None) -> Iterator[Row]:
    for place in store.places():
        yield {
            **_part_id(place.part),
            "host": place.host,
            "slot": place.slot,
            **_moment("first", place.first),
            **_moment("last", place.last),
            "open": place.open,
        }


def _counters(store: "Store", after: str | None) -> Iterator[Row]:
    for point in store.points(after=after):
        yield {
            "host": point.host,
            "part": point.part,
            "name": point.name,
            "subject": point.subject,
            "value": point.value,
            "at": _microseconds(point.moment.at),
            "run": point.moment.run,
            "boot_id": point.boot_id,
        }


def _plans(store: "Store", after: str | None) -> Iterator[Row]:
    for plan in store.plans():
        for host, fixes in plan.hosts.items():
            yield {
                "plan": plan.id,
                "sha256": plan.digest,
                "author": plan.author,
                "created": _microseconds(plan.created),
                "host": host,
                "fixes": ",".join(fixes),
            }


def _fix_runs(store: "Store", after: str | None) -> Iterator[Row]:
    for run in reversed(store.fix_runs(after=after)):
        for host in run.hosts:
            yield {
                "fix_run": run.id,
                "kind": run.kind,
                "plan": run.plan,
                "author": run.author,
                "approved_by": ",".join(run.approvals),
                "run_by": run.by,
                "folder": run.folder,
                "started": _microseconds(run.started),
                "seconds": run.seconds,
                "exit_code": run.exit_code,
                "host": host.host,
                "outcome": host.outcome,
                "why": host.why,
            }


def _actions(store: "Store", after: str | None) -> Iterator[Row]:
    run_ids = None if after is None else {run.id for run in store.fix_runs(after=after)}
    for action in store.actions():
        if run_ids is None or action.run in run_ids:
            yield {
                "fix_run": action.run,
                "kind": action.kind,
                "plan": action.plan,
                "host": action.host,
                "fix": action.fix,
                "subjects": ",".join(action.subjects),
                "resource": action.resource,
                "before": action.before,
                "after": action.after,
                "outcome": action.outcome,
                "at": _microseconds(action.at),
            }


def _proofs(store: "Store", after: str | None) -> Iterator[Row]:
    run_ids = None if after is None else {run.id for run in store.fix_runs(after=after)}
    for proof in store.proofs():
        if run_ids is None or proof.run in run_ids:
            yield {
                "fix_run": proof.run,
                "plan": proof.plan,
                "host": proof.host,
                "baseline": proof.baseline,
                "check": proof.check,
                "keys": " ".join(proof.keys),
                "subjects": ",".join(proof.subjects),
                "asked": _microseconds(proof.asked),
                "at": _microseconds(proof.at),
            }


OUTCOMES = {outcome: outcome.value for outcome in HostOutcome}
TYPES: Mapping[str, str] = {
    **dict.fromkeys(
        ("started", "arrived", "first", "last", "since", "ended", "at", "created", "asked"), WHEN
    ),
    **dict.fromkeys(("hosts", "visited", "exit_code", "value", *OUTCOMES.values()), WHOLE),
    "seconds": REAL,
    "open": TRUTH,
}
"""The types of columns by name, the same in all tables; all others are TEXT."""
TABLES: Mapping[str, ExportTable] = {
    "runs": ExportTable(
        columns="run series state nodevet fail_on started seconds hosts visited exit_code "
        + " ".join(OUTCOMES.values()),
        rows=_runs,
    ),
    "visits": ExportTable(
        columns="run host status why outcome seconds arrived machine_id boot_id baseline groups",
        rows=_visits,
    ),
    "findings": ExportTable(
        columns="host baseline check key subject_kind subject verdict severity expected actual "
        "why first first_run last last_run since since_run ended ended_run end after_plan",
        rows=_findings,
    ),
    "parts": ExportTable(columns="part kind model names", rows=_parts),
    "places": ExportTable(
        columns="part kind host slot first first_run last last_run open", rows=_places
    ),
    "counters": ExportTable(columns="host part name subject value at run boot_id", rows=_counters),
    "plans": ExportTable(columns="plan sha256 author host fixes created", rows=_plans),
    "fix_runs": ExportTable(
        columns="fix_run kind plan author approved_by run_by folder host outcome "
        "why started seconds exit_code",
        rows=_fix_runs,
    ),
    "actions": ExportTable(
        columns="fix_run kind plan host fix subjects resource before after outcome at",
        rows=_actions,
    ),
    "proofs": ExportTable(
        columns="fix_run plan host baseline check keys subjects asked at", rows=_proofs
    ),
}
