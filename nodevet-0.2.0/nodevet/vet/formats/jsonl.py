"""A run as JSON lines, written while hosts finish: the run, one line per host, the totals.

The field `record` of a line is `run`, `host` or `totals`. The first line names every host, so a
file that a crash cut short still accounts for all of them. If a host has two lines, the later one
counts: the first may turn out to be about another host.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from nodevet.base import typed
from nodevet.base.upgrades import Document, Upgrades
from nodevet.model import HostReport, Run, RunNews, Severity, Status
from nodevet.sheet.errors import ReportError
from nodevet.sheet.json import encode
from nodevet.vet.findings.fold import totals
from nodevet.vet.saved_schema import (
    UPGRADES,
    Schema,
    decode,
    is_current,
    upgraded,
)

COUNTS = True
Rows = Iterable[tuple[int, bytes]]  # lines with their numbers


class _Head(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="run"):
    schema: int
    id: str
    nodevet: str
    started: str
    fail_on: Severity
    replayed: bool
    baselines: Mapping[str, str]
    hosts: tuple[str, ...]
    fail_on_new: bool | msgspec.UnsetType = msgspec.UNSET
    only: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    skip: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class _Totals(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="totals"):
    seconds: float
    interrupted: bool
    hosts: Mapping[str, int]
    exit_code: int
    news: RunNews | msgspec.UnsetType = msgspec.UNSET


class _Names(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]


class _Record(msgspec.Struct, frozen=True):
    record: str


def pieces(run: Run) -> Iterator[str]:
    """A finished run, line by line."""
    yield head(run)
    yield from map(line, run.hosts)
    yield tail(run)


def head(run: Run, hosts: Iterable[str] = ()) -> str:
    """The first line. `hosts`: the names of all that will be visited, before any was."""
    names = tuple(hosts) or tuple(host.host for host in run.summaries)
    return _line(
        _Head(
            schema=run.schema,
            id=run.id,
            nodevet=run.nodevet,
            started=run.started,
            fail_on=run.fail_on,
            replayed=run.replayed,
            baselines=run.baselines,
            hosts=names,
            fail_on_new=run.fail_on_new,
            only=run.only,
            skip=run.skip,
        )
    )


def line(host: HostReport) -> str:
    """One host."""
    return f'{{"record":"host",{encode(host)[1:]}\n'


def tail(run: Run) -> str:
    """The last line."""
    return _line(
        _Totals(
            seconds=run.seconds,
            interrupted=run.interrupted,
            hosts={outcome.value: number for outcome, number in totals(run).hosts.items()},
            exit_code=run.exit_code,
            news=run.news,
        )
    )


def _line(record: object) -> str:
    return encode(record) + "\n"


def is_jsonl(text: str | bytes) -> bool:
    """Whether the first line is that of a saved run as JSON lines."""
    first = _bytes(text).lstrip().split(b"\n", 1)[0]
    try:
        return typed.decode(first, _Record).record == "run"
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def parse(text: str | bytes, upgrades: Upgrades = UPGRADES) -> tuple[Run, tuple[str, ...]]:
    """The run of checks, and what the reader must know if the file was cut short.

    A host's last line counts. Hosts that the file does not reach are `interrupted`. Raises
    ReportError for a line that is not valid, unless it is the last and lacks its newline.
    """
    rows, notes = _rows(text)
    (first, head), *rest = rows
    if is_current(decode(head, Schema, f"run, line {first}").schema, upgrades):
        start = decode(head, _Head, f"run, line {first}")
        names = start.hosts
        run, whole = _current(start, rest)
    else:
        names = decode(head, _Names, f"run, line {first}").hosts
        run, whole = _older(decode(head, Document, f"run, line {first}"), rest, upgrades)
    if not whole:
        notes.append("the file has no totals: the run was cut short")
    missing = tuple(_missing(names, run.hosts))
    if missing:
        notes.append(f"{len(missing):,} of {len(names):,} hosts are not in the file")
    return replace(run, hosts=(*run.hosts, *missing)), tuple(notes)


def _rows(text: str | bytes) -> tuple[list[tuple[int, bytes]], list[str]]:
    """The lines with their numbers, and a note about the last one. Raises ReportError."""
    *complete, rest = _bytes(text).split(b"\n")
    notes = []
    if rest.strip():
        try:
            msgspec.json.decode(rest)
            complete.append(rest)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            notes.append(f"line {len(complete) + 1} is cut short and was left out")
    rows = [(number, row) for number, row in enumerate(complete, 1) if row.strip()]
    if not rows:
        raise ReportError("not a saved run: it is empty")
    return rows, notes


def _current(start: _Head, rows: Rows) -> tuple[Run, bool]:
    """The run, and whether it is whole."""
    hosts, end = _body(rows)
    run = Run(
        id=start.id,
        nodevet=start.nodevet,
        started=start.started,
        seconds=end.seconds if end else max((host.seconds for host in hosts), default=0.0),
        fail_on=start.fail_on,
        interrupted=end.interrupted if end else True,
        replayed=start.replayed,
        baselines=start.baselines,
        hosts=tuple(hosts),
        fail_on_new=start.fail_on_new,
        only=start.only,
        skip=start.skip,
        news=end.news if end else msgspec.UNSET,
    )
    return run, end is not None


def _older(start: Document, rows: Rows, upgrades: Upgrades) -> tuple[Run, bool]:
    """Like `_current`, for an earlier schema: the lines as one document, converted to the current
    schema.
    """
    hosts: dict[str, Document] = {}
    end: Document = {"seconds": 0.0, "interrupted": True}
    whole = False
    for number, row in rows:
        record = decode(row, Document, f"run, line {number}")
        kind = record.pop("record", None)
        if kind == "totals":
            end, whole = {key: record.get(key) for key in end}, True
        elif kind == "host":
            hosts[str(record.get("host"))] = record
        else:
            raise _unknown(number, kind)
    document = {key: value for key, value in start.items() if key != "record"}
    run = upgraded({**document, **end, "hosts": list(hosts.values())}, upgrades)
    return run, whole


def _body(rows: Rows) -> tuple[list[HostReport], _Totals | None]:
    hosts: dict[str, HostReport] = {}
    end: _Totals | None = None
    for number, row in rows:
        kind = decode(row, _Record, f"run, line {number}").record
        if kind == "host":
            report = decode(row, HostReport, f"run, line {number}")
            hosts[report.host] = report
        elif kind == "totals":
            end = decode(row, _Totals, f"run, line {number}")
        else:
            raise _unknown(number, kind)
    return list(hosts.values()), end


def _unknown(number: int, kind: object) -> ReportError:
    return ReportError(f"not a saved run, line {number}: no record is named {kind!r}")


def _missing(names: Iterable[str], hosts: Iterable[HostReport]) -> Iterator[HostReport]:
    visited = {report.host for report in hosts}
    why = "the saved run ends before this host"
    for name in names:
        if name not in visited:
            yield HostReport(host=name, status=Status.INTERRUPTED, why=why)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
