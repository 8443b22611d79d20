"""Prepare one host of a run for writing: what is new, compared with what the store knows."""

import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection

from nodevet.base import age
from nodevet.evidence.document import Evidence, EvidenceError, open_evidence
from nodevet.model import HostOutcome, HostReport, Status
from nodevet.model.changes import HostNews
from nodevet.store import blobs, documents, known
from nodevet.store.database import Database
from nodevet.store.errors import StoreError
from nodevet.store.known import KnownHost
from nodevet.store.moments import moment
from nodevet.store.records import counters, parts, spans
from nodevet.store.records.model import SpanEnd
from nodevet.store.records.spans import OpenSpan, SpanStep
from nodevet.store.rows import encoded, plain

WEEK = 7 * 86400.0  # seconds until the readings of a host get a new keyframe
PAYS = 0.6  # greatest size of a delta, as a share of the whole; a larger one makes a keyframe
_OFTEN = frozenset(counters.OFTEN)
_SELDOM = frozenset(counters.SECTIONS) - _OFTEN
_COUNTING = frozenset(counters.SECTIONS)
_HOLDING = frozenset(parts.SECTIONS)


PrepareApart = Callable[[HostReport, bytes | None, Evidence | None, str], "PreparedHost | None"]
"""Of a host's report, its evidence, the same decoded, and the id of the run."""


class NewBlob(msgspec.Struct, frozen=True):
    """Content on its way into the store."""

    sha: bytes | None  # None: readings, which no other visit has
    size: int
    data: bytes
    base: int | None = None


class PreparedHost(msgspec.Struct):
    """One host of the run, prepared for writing."""

    report: HostReport  # of one that was prepared apart, without findings: see `whole`
    evidence: bytes | None
    host: KnownHost | None  # as it was before; None: never visited
    step: SpanStep
    news: HostNews
    at: float
    pieces: dict[bytes, NewBlob]  # by sha; those of all hosts that are written together
    steady: bytes | None = None  # the sha of a blob, as `judged`
    volatile: NewBlob | None = None
    judged: bytes | None = None
    keyframe: bool = False  # `volatile` becomes the host's keyframe
    moved: dict[counters.Key, int] = {}  # counters
    counted: bytes | None = None  # the hash of the counters of the OFTEN sections
    arrived: list[parts.Held] = []
    left: list[int] = []  # places that their part has left
    kept: Any = None  # the visit that this one replaces, whose evidence stays
    outcome: HostOutcome | None = None  # of one that was prepared apart
    whole: Callable[[], HostReport] | None = None  # its report, with findings

    @property
    def judged_outcome(self) -> HostOutcome:
        return self.outcome or self.report.outcome


def prepare_host(
    connection: Connection,
    report: HostReport,
    evidence: bytes | None,
    host: KnownHost | None,
    *,
    at: float,
    run: str,
    pieces: dict[bytes, NewBlob],
    decoded: Evidence | None = None,
) -> PreparedHost:
    """Prepare a host. `at`: when its report arrived, in seconds since 1970; `pieces`: see
    PreparedHost, it gets those that this host adds; `decoded`: the evidence as it was judged, whose
    sections need not be decoded again."""
    replaced = bool(
        host and host.machine and report.machine_id and host.machine != plain(report.machine_id)
    )
    open_spans = (
        [_proof_before_visit(span, host, report, at) for span in host.spans] if host else []
    )
    step = spans.step(open_spans, report, replaced=replaced)
    ended_all = any(ending.end is SpanEnd.REPLACED for ending in step.ended)
    began_before: dict[str, int] = {}
    if host and (step.ended or step.opened or step.still) and not ended_all:
        vetted = report.status is Status.VETTED
        if vetted:
            began_before |= known.times_begun(connection, host, report.baseline)
        if not vetted or any(not ending.span.key for ending in step.ended):
            began_before |= known.times_begun(connection, host, "")  # the host as a whole
    news = spans.news(report, step, now=moment(at, run), began=began_before, first=host is None)
    prepared = PreparedHost(
        report=report, evidence=evidence, host=host, step=step, news=news, at=at, pieces=pieces
    )
    if report.status is Status.VETTED:
        _prepare_judged(connection, prepared)
    if evidence is not None:
        _prepare_evidence(connection, prepared, evidence, decoded)
    return prepared


def preparing_apart(database: Database) -> PrepareApart:
    """Prepares hosts in a process that does not write them; None if it cannot read the store."""

    def prepare(
        report: HostReport, evidence: bytes | None, decoded: Evidence | None, run: str
    ) -> PreparedHost | None:
        with suppress(StoreError), database.reading() as connection:
            return _prepare_apart(connection, report, evidence, decoded, run)
        return None

    return prepare


def _prepare_apart(
    connection: Connection,
    report: HostReport,
    evidence: bytes | None,
    decoded: Evidence | None,
    run: str,
) -> PreparedHost:
    """As `prepare_host`; without what only preparing needs."""
    arrived = age.seconds_of(report.arrived)
    at = time.time() if arrived is None else arrived
    host = known.host(connection, plain(report.host))
    prepared = prepare_host(
        connection, report, evidence, host, at=at, run=run, pieces={}, decoded=decoded
    )
    prepared.outcome = report.outcome
    prepared.report = msgspec.structs.replace(report, findings=(), shadow=msgspec.UNSET)
    prepared.evidence = None
    if host is not None:
        prepared.host = msgspec.structs.replace(host, frame=None, spans=[])
    return prepared


def _proof_before_visit(span: OpenSpan, host: KnownHost, report: HostReport, at: float) -> OpenSpan:
    """An open span as this visit may judge it: without a proof that is of another machine, or that
    was not complete when the visit began."""
    proof = span.fixed
    if proof is None:
        return span
    proof_at = age.seconds_of(proof.at)
    same = host.machine is None or proof.machine_id in (None, host.machine)
    if same and proof_at is not None and proof_at + 1 <= at - report.seconds:  # whole seconds
        return span
    return msgspec.structs.replace(span, fixed=None)


def _prepare_judged(connection: Connection, prepared: PreparedHost) -> None:
    host = prepared.host
    content = encoded(spans.judged(prepared.report.findings))
    prepared.judged = sha = blobs.sha_of(content)
    if host is None or host.judged_sha != sha:
        _add_piece(connection, prepared, content, sha, host.judged if host else None)


def _prepare_evidence(
    connection: Connection, prepared: PreparedHost, evidence: bytes, decoded: Evidence | None
) -> None:
    split = documents.split_document(evidence, _OFTEN)
    vetted = prepared.report.status is Status.VETTED
    if split is None:
        prepared.counted = blobs.sha_of(evidence)[:8]
        if vetted:
            _prepare_hardware(connection, prepared, decoded or _opened(evidence), None)
        _prepare_readings(prepared, evidence)
        return
    changed = _prepare_steady(connection, prepared, split.steady)
    prepared.counted = blobs.sha_of(counters.counters_text(split.sent))[:8]
    moved = prepared.host is None or prepared.host.counted != prepared.counted
    if vetted and (moved or changed & (_COUNTING | _HOLDING)):
        _prepare_hardware(connection, prepared, decoded or _opened(evidence), changed)
    _prepare_readings(prepared, split.volatile)


def _prepare_steady(
    connection: Connection, prepared: PreparedHost, steady: Mapping[str, bytes]
) -> Set[str]:
    """Prepare the sections with other steady values, and return their names."""
    host = prepared.host
    shas = {name: blobs.sha_of(content) for name, content in steady.items()}
    manifest = msgspec.json.encode({name: sha.hex() for name, sha in shas.items()})
    prepared.steady = sha = blobs.sha_of(manifest)
    changed: set[str] = set()
    if host is not None and host.steady_sha == sha:
        return changed
    last = known.manifest(connection, host.steady) if host and host.steady else {}
    for name, section_sha in shas.items():
        if last.get(name) != section_sha.hex():
            changed.add(name)
            base = known.blob_of(connection, last.get(name))
            _add_piece(connection, prepared, steady[name], section_sha, base)
    _add_piece(connection, prepared, manifest, sha, host.steady if host else None)
    return changed


def _prepare_readings(prepared: PreparedHost, volatile: bytes) -> None:
    """Prepare the readings as a delta to the keyframe of the host, or as a new keyframe."""
    host = prepared.host
    if (
        host is not None
        and host.frame is not None
        and prepared.at - (host.keyframe_at or 0.0) < WEEK
        and len(data := blobs.pack(volatile, blobs.unpack(host.frame, host.frame_size or 0)))
        < len(host.frame)
    ):
        prepared.volatile = NewBlob(None, len(volatile), data, host.keyframe)
        return
    prepared.keyframe = True
    prepared.volatile = NewBlob(None, len(volatile), blobs.pack(volatile))


def _opened(document: bytes) -> Evidence | None:
    try:
        return open_evidence(document)
    except EvidenceError:
        return None


def _prepare_hardware(
    connection: Connection,
    prepared: PreparedHost,
    evidence: Evidence | None,
    changed: Set[str] | None,
) -> None:
    """Prepare the parts that came and went, and the counters that moved.

    `changed`: the sections with other steady values; None: any may have changed.
    """
    if evidence is None:
        return
    read_sections = frozenset(evidence.sections.raw)
    sections = read_sections if changed is None else read_sections & changed
    if sections & _HOLDING:
        _prepare_places(connection, prepared, evidence, read_sections)
    counted = counters.counter_values(evidence, read_sections & _OFTEN)
    counted |= counters.counter_values(evidence, sections & _SELDOM)
    before = known.last_counts(connection, prepared.host)
    text = cache(plain)  # a few texts make a thousand keys
    now = {
        (text(part), text(name), text(subject)): value
        for (part, name, subject), value in counted.items()
        if (value or before) and value < 1 << 64
    }
    prepared.moved = counters.changed_counters(before, now)


def _prepare_places(
    connection: Connection, prepared: PreparedHost, evidence: Evidence, sections: frozenset[str]
) -> None:
    held, complete_kinds = parts.held_parts(evidence, sections)
    open_places = {} if prepared.host is None else known.open_places(connection, prepared.host.id)
    now = {(part.kind, plain(part.id), plain(slot)): (part, slot) for part, slot in held}
    prepared.arrived = [item for key, item in now.items() if key not in open_places]
    held_parts = {key[:2] for key in now}
    prepared.left = [
        number
        for key, number in open_places.items()
        if key not in now and (key[0] in complete_kinds or key[:2] in held_parts)
    ]


def _add_piece(
    connection: Connection, prepared: PreparedHost, content: bytes, sha: bytes, last: int | None
) -> None:
    """Add a blob, compressed with the keyframe of the content before if that pays."""
    if sha in prepared.pieces:
        return
    data, base = blobs.pack(content), None
    if keyframe := known.base_of(connection, last):
        delta = blobs.pack(content, keyframe[1])
        if len(delta) < PAYS * len(data):
            data, base = delta, keyframe[0]
    prepared.pieces[sha] = NewBlob(sha, len(content), data, base)
