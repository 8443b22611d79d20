"""What a store knows of a host before it is visited again."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, func, select

from nodevet.base import typed
from nodevet.model import Finding, Severity, Status, Verdict
from nodevet.store import blobs, fixes
from nodevet.store import schema as t
from nodevet.store.contents import contents
from nodevet.store.moments import moment
from nodevet.store.records import counters, spans
from nodevet.store.records.model import FixProof, PartKind
from nodevet.store.records.spans import OpenSpan
from nodevet.store.text import plain

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
    """A host's row, with what it names, and its open spans."""

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
    """Those of these hosts that were met before, by name."""
    found = {}
    for row in connection.execute(_HOSTS, {"names": list(names)}):
        found[row[1]] = KnownHost(*row)
    if found:
        by_id = {each.id: each for each in found.values()}
        for row in connection.execute(_OPEN, {"hosts": list(by_id)}):
            by_id[row[0]].spans.append(_open_span(row))
        if failing := [each for each in by_id.values() if any(span.check for span in each.spans)]:
            _proved(connection, failing)
    return found


def _proved(connection: Connection, hosts: Collection[KnownHost]) -> None:
    """Note which open spans a run of fixes proved to be over since they were last seen."""
    proofs = fixes.proofs_since(connection, [each.id for each in hosts])
    for each in hosts if proofs else ():
        each.spans = [_with_proof(span, proofs.get(span.id)) for span in each.spans]


def _with_proof(span: OpenSpan, proof: FixProof | None) -> OpenSpan:
    if proof is None or proof.baseline != span.baseline:
        return span
    known = proof.covers(span.key, span.finding)
    return msgspec.structs.replace(span, fixed=proof) if known else span


def host(connection: Connection, name: str) -> KnownHost | None:
    """None: it was never met."""
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


def began(connection: Connection, host: KnownHost, baseline: str) -> dict[str, int]:
    """How often each finding began in the last judged visits of this machine, by key.

    `baseline` is empty for the host as a whole: of all its visits that were not interrupted.
    """
    asked = {"host": host.id, "baseline": plain(baseline)}
    cut = connection.execute(_CUT if baseline else _CUT_OF_HOST, asked).scalar() or 0
    cut = max(cut, host.machine_from or 0)
    return {row[0]: row[1] for row in connection.execute(_BEGAN, {**asked, "cut": cut})}


def manifest(connection: Connection, blob: int) -> Mapping[str, str]:
    """The sections of a host's last evidence: the SHA-256 of each, by name."""
    found = contents(connection, [blob]).get(blob, b"{}")
    listed: Mapping[str, str] = msgspec.json.decode(found)
    return listed


def blob_of(connection: Connection, sha: str | None) -> int | None:
    """The id of a blob, by its SHA-256 in hex."""
    if sha is None:
        return None
    asked = select(t.blob.c.id).where(t.blob.c.sha256 == bytes.fromhex(sha))
    return connection.execute(asked).scalar()


def base_of(connection: Connection, blob: int | None) -> tuple[int, bytes] | None:
    """The keyframe that a next piece like this one is to be compressed with: id and content."""
    row = connection.execute(_BLOB, {"id": blob}).one_or_none() if blob else None
    if row is not None and row.base is not None:
        row = connection.execute(_BLOB, {"id": row.base}).one_or_none()
    return None if row is None else (row.id, blobs.unpacked(row.data, row.size))


def counted(connection: Connection, host: KnownHost | None) -> dict[counters.Key, int]:
    """Where every counter of a host stood last."""
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
