"""One host of a run, ready to be written: what is new of it beside what the store knows."""

from collections.abc import Mapping, Set
from typing import Any

import msgspec
from sqlalchemy import Connection

from nodevet.base import age
from nodevet.checking.changes import HostNews
from nodevet.evidence.document import Evidence, EvidenceError, opened
from nodevet.model import HostReport, Status
from nodevet.store import blobs, documents, known
from nodevet.store.known import KnownHost
from nodevet.store.moments import moment
from nodevet.store.records import counters, parts, spans
from nodevet.store.records.model import SpanEnd
from nodevet.store.records.spans import OpenSpan, SpanStep
from nodevet.store.text import encoded, plain

WEEK = 7 * 86400.0  # seconds after which a host's readings get a new keyframe
PAYS = 0.6  # of a keyframe's size: a delta that is larger makes a new one
_OFTEN = frozenset(counters.OFTEN)
_SELDOM = frozenset(counters.SECTIONS) - _OFTEN
_COUNTING = frozenset(counters.SECTIONS)
_HOLDING = frozenset(parts.SECTIONS)


class NewBlob(msgspec.Struct, frozen=True):
    """Content on its way into the store."""

    sha: bytes | None  # None: readings, which no other visit has
    size: int
    data: bytes
    base: int | None = None


class TakenHost(msgspec.Struct):
    """One host of the run, ready to be written."""

    report: HostReport
    evidence: bytes | None
    host: KnownHost | None  # as it was; None: never met
    step: SpanStep
    news: HostNews
    at: float
    pieces: list[NewBlob] = []
    steady: bytes | None = None  # the sha of a blob, as `judged`
    volatile: NewBlob | None = None
    judged: bytes | None = None
    keyframe: bool = False  # `volatile` becomes the host's keyframe
    moved: dict[counters.Key, int] = {}  # counters
    counted: bytes | None = None  # the hash of all counters that are seen every night
    arrived: list[parts.Held] = []
    left: list[int] = []  # places that hold their part no more
    kept: Any = None  # the visit that this one replaces: its evidence stays


def prepared(
    connection: Connection,
    report: HostReport,
    evidence: bytes | None,
    host: KnownHost | None,
    *,
    at: float,
    run: str,
) -> TakenHost:
    """`at`: when it came in."""
    replaced = bool(
        host and host.machine and report.machine_id and host.machine != plain(report.machine_id)
    )
    open_spans = [_fixed_before(span, host, report, at) for span in host.spans] if host else []
    step = spans.step(open_spans, report, replaced=replaced)
    ended_all = any(ending.end is SpanEnd.REPLACED for ending in step.ended)
    began: dict[str, int] = {}
    if host and (step.ended or step.opened or step.still) and not ended_all:
        vetted = report.status is Status.VETTED
        if vetted:
            began |= known.began(connection, host, report.baseline)
        if not vetted or any(not ending.span.key for ending in step.ended):
            began |= known.began(connection, host, "")  # the host as a whole
    news = spans.news(report, step, now=moment(at, run), began=began, first=host is None)
    taken = TakenHost(report=report, evidence=evidence, host=host, step=step, news=news, at=at)
    if report.status is Status.VETTED:
        _judged(connection, taken)
    if evidence is not None:
        _evidence(connection, taken, evidence)
    return taken


def _fixed_before(span: OpenSpan, host: KnownHost, report: HostReport, at: float) -> OpenSpan:
    """An open span as this visit may judge it: a proof of another machine, or one that was not
    complete when the visit began, says nothing of what the visit read."""
    proof = span.fixed
    if proof is None:
        return span
    done = age.seconds_of(proof.at)
    same = host.machine is None or proof.machine_id in (None, host.machine)
    if same and done is not None and done + 1 <= at - report.seconds:  # `done`: whole seconds
        return span
    return msgspec.structs.replace(span, fixed=None)


def _judged(connection: Connection, taken: TakenHost) -> None:
    host = taken.host
    content = encoded(spans.judged(taken.report.findings))
    taken.judged = sha = blobs.sha_of(content)
    if host is None or host.judged_sha != sha:
        taken.pieces.append(_delta(connection, content, sha, host.judged if host else None))


def _evidence(connection: Connection, taken: TakenHost, evidence: bytes) -> None:
    found = documents.apart(evidence, _OFTEN)
    vetted = taken.report.status is Status.VETTED
    if found is None:
        taken.counted = blobs.sha_of(evidence)[:8]
        if vetted:
            _hardware(connection, taken, evidence, None)
        _readings(taken, evidence)
        return
    changed = _steady(connection, taken, found.steady)
    taken.counted = blobs.sha_of(counters.tallied(found.sent))[:8]
    moved = taken.host is None or taken.host.counted != taken.counted
    if vetted and (moved or changed & (_COUNTING | _HOLDING)):
        _hardware(connection, taken, evidence, changed)
    _readings(taken, found.volatile)


def _steady(connection: Connection, taken: TakenHost, steady: Mapping[str, bytes]) -> Set[str]:
    """The sections that are not as they were, which are kept."""
    host = taken.host
    shas = {name: blobs.sha_of(content) for name, content in steady.items()}
    manifest = msgspec.json.encode({name: sha.hex() for name, sha in shas.items()})
    taken.steady = sha = blobs.sha_of(manifest)
    changed: set[str] = set()
    if host is not None and host.steady_sha == sha:
        return changed
    last = known.manifest(connection, host.steady) if host and host.steady else {}
    for name, each in shas.items():
        if last.get(name) != each.hex():
            changed.add(name)
            base = known.blob_of(connection, last.get(name))
            taken.pieces.append(_delta(connection, steady[name], each, base))
    taken.pieces.append(_delta(connection, manifest, sha, host.steady if host else None))
    return changed


def _readings(taken: TakenHost, volatile: bytes) -> None:
    """As what differs from the host's keyframe, or as a new one."""
    host = taken.host
    if (
        host is not None
        and host.frame is not None
        and taken.at - (host.keyframe_at or 0.0) < WEEK
        and len(data := blobs.packed(volatile, blobs.unpacked(host.frame, host.frame_size or 0)))
        < len(host.frame)
    ):
        taken.volatile = NewBlob(None, len(volatile), data, host.keyframe)
        return
    taken.keyframe = True
    taken.volatile = NewBlob(None, len(volatile), blobs.packed(volatile))


def _hardware(
    connection: Connection, taken: TakenHost, document: bytes, changed: Set[str] | None
) -> None:
    """The parts that came and went, and the counters that moved.

    `changed`: the sections that are not as they were, beside their readings; None: any may be.
    """
    try:
        evidence = opened(document)
    except EvidenceError:
        return
    every = frozenset(evidence.sections.raw)
    sections = every if changed is None else every & changed
    if sections & _HOLDING:
        _places(connection, taken, evidence, every)
    found = counters.counted(evidence, every & _OFTEN)
    found |= counters.counted(evidence, sections & _SELDOM)
    now = {_plain_key(key): value for key, value in found.items() if value < 1 << 64}
    taken.moved = counters.moved(known.counted(connection, taken.host), now)


def _places(
    connection: Connection, taken: TakenHost, evidence: Evidence, every: frozenset[str]
) -> None:
    held, told_of = parts.held(evidence, every)
    there = {} if taken.host is None else known.open_places(connection, taken.host.id)
    now = {(part.kind, plain(part.id), plain(slot)): (part, slot) for part, slot in held}
    taken.arrived = [each for key, each in now.items() if key not in there]
    here = {key[:2] for key in now}
    taken.left = [
        number
        for key, number in there.items()
        if key not in now and (key[0] in told_of or key[:2] in here)
    ]


def _plain_key(key: counters.Key) -> counters.Key:
    return plain(key[0]), plain(key[1]), plain(key[2])


def _delta(connection: Connection, content: bytes, sha: bytes, last: int | None) -> NewBlob:
    """Compressed with the keyframe of what was there last, where that pays."""
    plainly = blobs.packed(content)
    if base := known.base_of(connection, last):
        data = blobs.packed(content, base[1])
        if len(data) < PAYS * len(plainly):
            return NewBlob(sha, len(content), data, base[0])
    return NewBlob(sha, len(content), plainly)
