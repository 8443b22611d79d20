"""Queries for findings as spans of time, and for the verdicts of a host in a run."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from nodevet.base import typed
from nodevet.model import Finding, Severity, Status, Verdict
from nodevet.store import runs
from nodevet.store import schema as t
from nodevet.store.blobs import content, contents
from nodevet.store.moments import (
    FIRST,
    FIRST_AND_LAST,
    FIRST_RUN,
    LAST,
    LAST_RUN,
    LAST_SEEN,
    instant,
    moment,
)
from nodevet.store.records.model import FindingSpan, SpanEnd
from nodevet.store.records.spans import judged_keys
from nodevet.store.rows import plain

_SINCE = t.visit.alias("since_visit")
_SINCE_RUN = t.run.alias("since_run")
_ENDED = t.visit.alias("ended_visit")
_ENDED_RUN = t.run.alias("ended_run")
_SPANS = select(
    t.finding_span,
    t.host.c.name.label("host_name"),
    t.baseline.c.name.label("baseline_name"),
    t.finding_text.c.finding,
    *FIRST_AND_LAST,
    LAST.c.id.label("last_visit"),
    _SINCE.c.at.label("since_at"),
    _SINCE_RUN.c.name.label("since_run"),
    _ENDED.c.at.label("ended_at"),
    _ENDED_RUN.c.name.label("ended_run"),
).select_from(
    t.finding_span.join(t.host, t.host.c.id == t.finding_span.c.host)
    .join(t.baseline, t.baseline.c.id == t.finding_span.c.baseline)
    .outerjoin(t.finding_text, t.finding_text.c.id == t.finding_span.c.text)
    .join(FIRST, FIRST.c.id == t.finding_span.c.first)
    .join(FIRST_RUN, FIRST_RUN.c.id == FIRST.c.run)
    .join(
        LAST,
        LAST.c.id
        == func.coalesce(
            t.finding_span.c.last,
            LAST_SEEN,
        ),
    )
    .join(LAST_RUN, LAST_RUN.c.id == LAST.c.run)
    .outerjoin(_SINCE, _SINCE.c.id == t.finding_span.c.since)
    .outerjoin(_SINCE_RUN, _SINCE_RUN.c.id == _SINCE.c.run)
    .outerjoin(_ENDED, _ENDED.c.id == t.finding_span.c.ended)
    .outerjoin(_ENDED_RUN, _ENDED_RUN.c.id == _ENDED.c.run)
)

_MEANWHILE = t.visit.alias("meanwhile")
_IS_SO = and_(
    _MEANWHILE.c.host == t.finding_span.c.host,
    _MEANWHILE.c.superseded.is_(False),
    _MEANWHILE.c.id >= t.finding_span.c.first,
    or_(t.finding_span.c.ended.is_(None), _MEANWHILE.c.id <= t.finding_span.c.last),
    or_(
        and_(
            t.finding_span.c.check != "",
            _MEANWHILE.c.baseline == t.finding_span.c.baseline,
        ),
        and_(
            t.finding_span.c.check == "",
            _MEANWHILE.c.baseline.is_(None),
            _MEANWHILE.c.status != Status.INTERRUPTED.value,
        ),
    ),
)
"""A visit to the host of a finding during its span, judged by the same baseline; for a host as a
whole, a visit that was not vetted."""
_IS_UNJUDGED = and_(
    _MEANWHILE.c.host == t.finding_span.c.host,
    _MEANWHILE.c.superseded.is_(False),
    _MEANWHILE.c.baseline.is_(None),
    t.finding_span.c.check != "",
    _MEANWHILE.c.id > t.finding_span.c.first,
    or_(t.finding_span.c.ended.is_(None), _MEANWHILE.c.id < t.finding_span.c.ended),
)
"""A visit without a verdict to the host of a finding, between visits that judged it."""


def select_spans(
    *,
    host: str | None = None,
    check: str | None = None,
    run: str | None = None,
    after: str | None = None,
    ended_after: str | None = None,
    unjudged: bool = False,
) -> Select[Any]:
    """See Store.spans. `run`: its id."""
    span = t.finding_span.c
    query = _SPANS
    if host is not None:
        query = query.where(t.host.c.name == plain(host))
    if check is not None:
        query = query.where(span.check == plain(check))
    if after is not None:
        query = query.where(LAST.c.at >= instant(after))
    if ended_after is not None:
        first = select(func.min(t.visit.c.id)).where(
            t.visit.c.run == runs.id_of(ended_after).scalar_subquery()
        )
        query = query.where(span.ended > first.scalar_subquery())
    if run is not None:
        query = query.where(_is_in(run, _IS_UNJUDGED if unjudged else _IS_SO))
    return query


def _is_in(run: str, visit: ColumnElement[bool]) -> Any:
    """Whether a run made such a visit."""
    return (
        select(_MEANWHILE.c.id)
        .join(t.run, t.run.c.id == _MEANWHILE.c.run)
        .where(t.run.c.name == run, visit)
        .exists()
    )


def standing_verdicts(
    connection: Connection, check: str, runs: Collection[str], host: str | None
) -> Iterator[tuple[str, str, Verdict]]:
    """See Store.standing_verdicts."""
    query = (
        select(t.run.c.name, t.host.c.name.label("host"), t.finding_span.c.verdict)
        .distinct()
        .select_from(t.finding_span.join(t.host, t.host.c.id == t.finding_span.c.host))
        .join(_MEANWHILE, _IS_SO)
        .join(t.run, t.run.c.id == _MEANWHILE.c.run)
        .where(t.finding_span.c.check == plain(check), t.run.c.name.in_(runs))
        .order_by(t.run.c.name, t.host.c.name)
    )
    if host is not None:
        query = query.where(t.host.c.name == plain(host))
    for row in connection.execute(query):
        yield row.name, row.host, Verdict(row.verdict)


def check_verdicts(connection: Connection, run: str, host: str) -> dict[str, Verdict]:
    """The verdicts ok and not_applicable, by key."""
    query = select(t.visit.c.judged).where(
        t.visit.c.run == runs.id_of(run).scalar_subquery(),
        t.visit.c.host == select(t.host.c.id).where(t.host.c.name == plain(host)).scalar_subquery(),
        t.visit.c.superseded.is_(False),
    )
    blob = connection.execute(query).scalar()
    verdicts: dict[str, Verdict] = {}
    if blob is not None:
        findings = typed.decode(content(connection, blob), dict[str, list[tuple[str, str, str]]])
        for verdict in (Verdict.NOT_APPLICABLE, Verdict.OK):
            verdicts |= dict.fromkeys(judged_keys(findings[verdict.value]), verdict)
    return verdicts


def passed_hosts(connection: Connection, run: str, check: str, hosts: Collection[str]) -> set[str]:
    """The hosts on which a check was ok in a run, for at least one subject."""
    query = (
        select(t.host.c.name, t.visit.c.judged)
        .join(t.visit, t.visit.c.host == t.host.c.id)
        .where(
            t.visit.c.run == runs.id_of(run).scalar_subquery(),
            t.visit.c.superseded.is_(False),
            t.visit.c.judged.is_not(None),
            t.host.c.name.in_([plain(host) for host in hosts]),
        )
    )
    blob_of = {row.name: row.judged for row in connection.execute(query)}
    contents_of = contents(connection, set(blob_of.values()))  # alike hosts share one blob
    passing = {blob for blob, text in contents_of.items() if check in _passed_checks(text)}
    return {host for host in hosts if blob_of.get(plain(host)) in passing}


def _passed_checks(judged: bytes) -> set[str]:
    findings = typed.decode(judged, dict[str, list[tuple[str, str, str]]])
    return {check for check, _, _ in findings[Verdict.OK.value]}


def worst_verdicts(
    judged: Mapping[str, Verdict], spans: Iterable[FindingSpan]
) -> dict[str, Verdict]:
    """All verdicts by key, with those of spans; the worst if a key has several."""
    order = [Verdict.WAIVED, Verdict.UNKNOWN, Verdict.FAIL]
    ordered = sorted((span for span in spans if span.check), key=lambda s: order.index(s.verdict))
    return {**judged, **{span.key: span.verdict for span in ordered}}


def span_of(row: Any) -> FindingSpan:
    return FindingSpan(
        host=row.host_name,
        baseline=row.baseline_name,
        key=row.key,
        check=row.check,
        verdict=Verdict(row.verdict),
        severity=Severity(row.severity),
        finding=typed.decode(row.finding, Finding) if row.finding else None,
        why=row.why,
        first=moment(row.first_at, row.first_run),
        last=moment(row.last_at, row.last_run),
        end=SpanEnd(row.end) if row.end else None,
        ended=moment(row.ended_at, row.ended_run) if row.ended_run is not None else None,
        since=moment(row.since_at, row.since_run) if row.since_run is not None else None,
        since_visit=row.since or row.first,
        last_visit=row.last_visit,
        ended_visit=row.ended,
        after_plan=row.after_plan or "",
    )
