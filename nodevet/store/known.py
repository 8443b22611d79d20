"""What the store knows about a host before its next visit."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, func, select

from nodevet.base import typed
from nodevet.model import Finding, Severity, Status, Verdict
from nodevet.store import blobs, fixes
from nodevet.store import schema as t
from nodevet.store.blobs import contents
from nodevet.store.moments import moment
from nodevet.store.records import counters, spans
from nodevet.store.records.model import FixProof, PartKind
from nodevet.store.records.spans import OpenSpan
from nodevet.store.rows import plain

_KEYFRAME = t.blob.alias("keyframe")
_STEADY = t.blob.alias("steady_blob")
_JUDGED = t.blob.alias("judged_blob")
_HOSTS = (
    select(
        t.host,
        t.boot.c.machine_id,
        t.boot.c.boot_id,
        _KEYFRAME.c.data,
        _KEYFRAME.c.size,
        _STEADY.c.sha256,
        _JUDGED.c.sha256,
    )
    .select_from(
        t.host.outerjoin(t.boot, t.boot.c.id == t.host.c.boot)
        .outerjoin(_KEYFRAME, _KEYFRAME.c.id == t.host.c.keyframe)
        .outerjoin(_STEADY, _STEADY.c.id == t.host.c.steady)
        .outerjoin(_JUDGED, _JUDGED.c.id == t.host.c.judged)
    )
    .where(t.host.c.name.in_(bindparam("names", expanding=True)))
)
_SINCE = t.visit.alias("since_visit")
_OPEN = (
    select(
        t.finding_span.c.host,
        t.finding_span.c.id,
        t.baseline.c.name,
        t.finding_span.c.key,
        t.finding_span.c.check,
        t.finding_span.c.verdict,
        t.finding_span.c.severity,
        t.finding_span.c.said,
        _SINCE.c.at,
        t.run.c.name,
        t.finding_text.c.finding,
        _SINCE.c.id.label("since_visit"),
        t.finding_span.c.after_plan,
    )
    .select_from(
        t.finding_span.join(t.baseline, t.baseline.c.id == t.finding_span.c.baseline)
        .outerjoin(t.finding_text, t.finding_text.c.id == t.finding_span.c.text)
        .join(_SINCE, _SINCE.c.id == func.coalesce(t.finding_span.c.since, t.finding_span.c.first))
        .join(t.run, t.run.c.id == _SINCE.c.run)
    )
    .where(
        t.finding_span.c.host.in_(bindparam("hosts", expanding=True)),
        t.finding_span.c.ended.is_(None),
    )
    .order_by(t.finding_span.c.id)
)
_CUT = (
    select(t.visit.c.id)
    .where(
        t.visit.c.host == bindparam("host"),
        t.visit.c.baseline
        == select(t.baseline.c.id)
        .where(t.baseline.c.name == bindparam("baseline"))
        .scalar_subquery(),
    )
    .order_by(t.visit.c.id.desc())
    .limit(1)
    .offset(spans.RECENT - 2)
)
_CUT_OF_HOST = (
    select(t.visit.c.id)
    .where(t.visit.c.host == bindparam("host"), t.visit.c.status != Status.INTERRUPTED.value)
    .order_by(t.visit.c.id.desc())
    .limit(1)
    .offset(spans.RECENT - 2)
)
_BEGAN = (
    select(t.finding_span.c.key, func.count())
    .select_from(t.finding_span.join(t.baseline, t.baseline.c.id == t.finding_span.c.baseline))
    .where(
        t.finding_span.c.host == bindparam("host"),
        t.baseline.c.name == bindparam("baseline"),
        t.finding_span.c.first >= bindparam("cut"),
        t.finding_span.c.since.is_(None),
        t.finding_span.c.verdict.in_([verdict.value for verdict in spans.TROUBLE]),
    )
    .group_by(t.finding_span.c.key)
)
_BLOB = select(t.blob.c.id, t.blob.c.base, t.blob.c.size, t.blob.c.data).where(
    t.blob.c.id == bindparam("id")
)


class KnownHost(msgspec.Struct):
    """The row of a host, with the rows that it refers to, and its open spans."""

    id: int
    name: str
    visit: int | None
    vetted: int | None
    machine: str | None
    machine_from: int | None
    boot: int | None
    keyframe: int | None
    keyframe_at: float | None
    steady: int | None
    judged: int | None
    counted: bytes | None
    machine_id: str | None
    boot_id: str | None
    frame: bytes | None  # the keyframe, packed
    frame_size: int | None
    steady_sha: bytes | None
    judged_sha: bytes | None
    spans: list[OpenSpan] = []


def hosts(connection: Connection, names: Iterable[str]) -> dict[str, KnownHost]:
    """The hosts that were visited before, by name."""
    by_name = {}
    for row in connection.execute(_HOSTS, {"names": list(names)}):
        by_name[row[1]] = KnownHost(*row)
    if by_name:
        by_id = {entry.id: entry for entry in by_name.values()}
        for row in connection.execute(_OPEN, {"hosts": list(by_id)}):
            by_id[row[0]].spans.append(_open_span(row))
        if failing := [
            entry for entry in by_id.values() if any(span.check for span in entry.spans)
        ]:
            _note_proofs(connection, failing)
    return by_name


def _note_proofs(connection: Connection, hosts: Collection[KnownHost]) -> None:
    """Note the open spans that a run of fixes proved to be over since they were last seen."""
    proofs = fixes.proofs_since(connection, [known_host.id for known_host in hosts])
    for known_host in hosts if proofs else ():
        known_host.spans = [_with_proof(span, proofs.get(span.id)) for span in known_host.spans]


def _with_proof(span: OpenSpan, proof: FixProof | None) -> OpenSpan:
    if proof is None or proof.baseline != span.baseline:
        return span
    is_proved = proof.covers(span.key, span.finding)
    return msgspec.structs.replace(span, fixed=proof) if is_proved else span


def host(connection: Connection, name: str) -> KnownHost | None:
    """A host; None if it was never visited."""
    return hosts(connection, [name]).get(name)


def _open_span(row: Any) -> OpenSpan:
    return OpenSpan(
        id=row[1],
        baseline=row[2],
        key=row[3],
        check=row[4],
        verdict=Verdict(row[5]),
        severity=Severity(row[6]),
        said=row[7],
        since=moment(row[8], row[9]),
        since_visit=row[11],
        finding=None if row[10] is None else typed.decode(row[10], Finding),
        after_plan=row[12] or "",
    )


def times_begun(connection: Connection, host: KnownHost, baseline: str) -> dict[str, int]:
    """How often each finding began in the last judged visits of this machine, by key.

    Without a `baseline` it is about the host as a whole, in all visits that were not interrupted.
    """
    parameters = {"host": host.id, "baseline": plain(baseline)}
    cut = connection.execute(_CUT if baseline else _CUT_OF_HOST, parameters).scalar() or 0
    cut = max(cut, host.machine_from or 0)
    return {row[0]: row[1] for row in connection.execute(_BEGAN, {**parameters, "cut": cut})}


def manifest(connection: Connection, blob: int) -> Mapping[str, str]:
    """The SHA-256 of each section of the last evidence of a host, by name."""
    text = contents(connection, [blob]).get(blob, b"{}")
    sections: Mapping[str, str] = msgspec.json.decode(text)
    return sections


def blob_of(connection: Connection, sha: str | None) -> int | None:
    """The id of a blob by its SHA-256 in hex; None if there is none."""
    if sha is None:
        return None
    query = select(t.blob.c.id).where(t.blob.c.sha256 == bytes.fromhex(sha))
    return connection.execute(query).scalar()


def base_of(connection: Connection, blob: int | None) -> tuple[int, bytes] | None:
    """The id and content of the keyframe to compress the next version of a blob with."""
    row = connection.execute(_BLOB, {"id": blob}).one_or_none() if blob else None
    if row is not None and row.base is not None:
        row = connection.execute(_BLOB, {"id": row.base}).one_or_none()
    return None if row is None else (row.id, blobs.unpack(row.data, row.size))


def last_counts(connection: Connection, host: KnownHost | None) -> dict[counters.Key, int]:
    """The last value of every counter of a host."""
    if host is None:
        return {}
    c = t.counter.c
    last = (
        select(func.max(c.id)).where(c.host == host.id).group_by(c.part, c.name, c.subject)
    ).scalar_subquery()
    rows = connection.execute(
        select(t.part.c.name, c.name, c.subject, c.value)
        .select_from(t.counter.outerjoin(t.part, t.part.c.id == c.part))
        .where(c.id.in_(last))
    )
    return {(row[0] or "", row[1], row[2]): row[3] % (1 << 64) for row in rows}


def open_places(connection: Connection, host: int) -> dict[tuple[PartKind, str, str], int]:
    rows = connection.execute(
        select(t.part.c.kind, t.part.c.name, t.place.c.slot, t.place.c.id)
        .join(t.part, t.part.c.id == t.place.c.part)
        .where(t.place.c.host == host, t.place.c.ended.is_(None))
    )
    return {(PartKind(row[0]), row[1], row[2]): row[3] for row in rows}
