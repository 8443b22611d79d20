"""How many hosts began to fail a check in one run; the failure budget needs this later."""

from collections.abc import Collection, Iterator

from sqlalchemy import Connection, Row, Select, func, or_, select

from nodevet.model import Severity, Verdict
from nodevet.store import schema as t
from nodevet.store.records.model import BegunTogether

_SINCE = t.visit.alias("since_visit")


def begun_together(connection: Connection, checks: Collection[str]) -> Iterator[BegunTogether]:
    """The runs in which hosts began to fail one of these checks that they still fail.

    A host that was new or another machine in that run does not count, as in nodevet.vet.suspicion.
    """
    still: dict[tuple[str, int], set[str]] = {}
    for row in connection.execute(_began(checks).where(t.finding_span.c.ended.is_(None))):
        still.setdefault((row.check, row.run), set()).add(row.host)
    runs = {run for _, run in still}
    hosts_of: dict[tuple[str, int], set[str]] = {}
    for row in connection.execute(_began(checks).where(_SINCE.c.run.in_(runs))):
        hosts_of.setdefault((row.check, row.run), set()).add(row.host)
    judged = {run: _judged(connection, run) for run in sorted(runs)}
    for (check, run), hosts in sorted(still.items()):
        yield BegunTogether(
            check=check,
            run=judged[run].name,
            series=judged[run].series,
            started=judged[run].began,
            still=frozenset(hosts),
            hosts=len(hosts_of[check, run]),
            judged=judged[run].judged,
        )


def _began(checks: Collection[str]) -> Select[tuple[str, int, str]]:
    span = t.finding_span
    return (
        select(span.c.check, _SINCE.c.run, t.host.c.name.label("host"))
        .distinct()
        .join(_SINCE, _SINCE.c.id == func.coalesce(span.c.since, span.c.first))
        .join(t.host, t.host.c.id == span.c.host)
        .where(
            span.c.check.in_(sorted(checks)),
            span.c.verdict == Verdict.FAIL.value,
            span.c.severity != Severity.SHADOW.value,
            or_(t.host.c.machine_from.is_(None), t.host.c.machine_from != _SINCE.c.id),
        )
    )


def _judged(connection: Connection, run: int) -> Row[tuple[str, str, str, int]]:
    query = (
        select(
            t.run.c.name,
            t.run.c.series,
            t.run.c.began,
            func.count(t.visit.c.id).label("judged"),
        )
        .join(t.visit, t.visit.c.run == t.run.c.id)
        .join(t.host, t.host.c.id == t.visit.c.host)
        .where(
            t.run.c.id == run,
            t.visit.c.superseded.is_(False),
            t.visit.c.baseline.is_not(None),
            or_(t.host.c.machine_from.is_(None), t.host.c.machine_from != t.visit.c.id),
        )
        .group_by(t.run.c.name, t.run.c.series, t.run.c.began)
    )
    return connection.execute(query).one()
