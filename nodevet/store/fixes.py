"""Plans of fixes, the runs that carried them out, and what these changed."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, or_, select

from nodevet.base import age, typed
from nodevet.store import schema as t
from nodevet.store.contents import content, keep
from nodevet.store.ids import host_id, next_id
from nodevet.store.moments import LAST_SEEN
from nodevet.store.records.model import (
    FailedFix,
    FixHost,
    FixProof,
    RecordedAction,
    RecordedFixRun,
    RecordedPlan,
)
from nodevet.store.text import encoded, plain


def record_plan(connection: Connection, plan: RecordedPlan, text: bytes) -> None:
    """One that is known stays."""
    known = select(t.plan.c.id).where(t.plan.c.sha256 == plan.digest)
    if connection.execute(known).scalar() is not None:
        return
    number = next_id(connection, t.plan)
    connection.execute(
        insert(t.plan).values(
            id=number,
            sha256=plan.digest,
            name=plain(plan.id),
            author=plain(plan.author),
            created=_seconds(plan.created),
            text=keep(connection, text),
        )
    )
    first = next_id(connection, t.planned)
    rows = [
        {
            "id": first + place,
            "plan": number,
            "host": host_id(connection, host),
            "fixes": encoded(fixes),
        }
        for place, (host, fixes) in enumerate(plan.hosts.items())
    ]
    if rows:
        connection.execute(insert(t.planned), rows)


def plan_text(connection: Connection, digest: str) -> bytes | None:
    blob = connection.execute(select(t.plan.c.text).where(t.plan.c.sha256 == digest)).scalar()
    return None if blob is None else content(connection, blob)


def plans(connection: Connection, host: str | None) -> list[RecordedPlan]:
    """Oldest first."""
    asked = (
        select(t.plan, t.planned.c.fixes, t.host.c.name.label("host_name"))
        .outerjoin(t.planned, t.planned.c.plan == t.plan.c.id)
        .outerjoin(t.host, t.host.c.id == t.planned.c.host)
        .order_by(t.plan.c.created, t.plan.c.id, t.planned.c.id)
    )
    hosts: dict[str, dict[str, tuple[str, ...]]] = {}
    rows = connection.execute(_of_host(asked, host)).all()
    for row in rows:
        fixes = hosts.setdefault(row.sha256, {})
        if row.host_name is not None:
            fixes[row.host_name] = typed.decode(row.fixes, tuple[str, ...])
    return [
        RecordedPlan(
            digest=row.sha256,
            id=row.name,
            author=row.author,
            created=age.instant(row.created),
            hosts=hosts[row.sha256],
        )
        for row in {row.sha256: row for row in rows}.values()
    ]


def record_run(
    connection: Connection,
    run: RecordedFixRun,
    actions: Sequence[RecordedAction],
    proofs: Sequence[FixProof],
) -> None:
    """Recorded again, it replaces what it was."""
    found = connection.execute(select(t.fix_run.c.id).where(t.fix_run.c.name == plain(run.id)))
    number = found.scalar()
    if number is None:
        number = next_id(connection, t.fix_run)
    earlier = _proofs_of(connection, number)
    for table in (t.action, t.fix_host, t.proof):
        connection.execute(delete(table).where(table.c.run == number))
    connection.execute(delete(t.fix_run).where(t.fix_run.c.id == number))
    connection.execute(
        insert(t.fix_run).values(
            id=number,
            name=plain(run.id),
            kind=plain(run.kind),
            plan=plain(run.digest),
            plan_name=plain(run.plan),
            author=plain(run.author),
            approvals=encoded(run.approvals),
            by=plain(run.by),
            folder=plain(run.folder),
            started=_seconds(run.started),
            began=plain(run.started),
            seconds=run.seconds,
            exit_code=run.exit_code,
            outcomes=encoded(run.outcomes),
        )
    )
    hosts = {name: host_id(connection, name) for name in _hosts(run, actions, proofs)}
    first = next_id(connection, t.fix_host)
    came = [
        {
            "id": first + place,
            "run": number,
            "host": hosts[each.host],
            "outcome": plain(each.outcome),
            "why": plain(each.why),
        }
        for place, each in enumerate(run.hosts)
    ]
    if came:
        connection.execute(insert(t.fix_host), came)
    first = next_id(connection, t.action)
    changed = [
        {
            "id": first + place,
            "run": number,
            "host": hosts[each.host],
            "step": plain(each.step),
            "fix": plain(each.fix),
            "subjects": encoded(each.subjects),
            "resource": plain(each.resource),
            "before": plain(each.before),
            "after": plain(each.after),
            "outcome": plain(each.outcome),
            "at": _seconds(each.at),
        }
        for place, each in enumerate(actions)
    ]
    if changed:
        connection.execute(insert(t.action), changed)
    _record_proofs(connection, number, hosts, proofs, earlier)


ProofKey = tuple[int, str, float]  # host, check, at


def _proofs_of(connection: Connection, run: int) -> dict[ProofKey, int]:
    """The proofs that are recorded of a run: each with the visit after which it came."""
    p = t.proof.c
    rows = connection.execute(select(p.host, p.check, p.at, p.visit).where(p.run == run))
    return {(row.host, row.check, row.at): row.visit for row in rows}


def _record_proofs(
    connection: Connection,
    run: int,
    hosts: Mapping[str, int],
    proofs: Sequence[FixProof],
    earlier: Mapping[ProofKey, int],
) -> None:
    """`earlier`: as `_proofs_of`. A proof that was recorded before came before the visits since."""
    came = select(t.fix_host.c.host).where(t.fix_host.c.run == run)
    listed = connection.execute(select(t.host.c.id, t.host.c.visit).where(t.host.c.id.in_(came)))
    visits = {row.id: row.visit or 0 for row in listed}
    first = next_id(connection, t.proof)
    rows = []
    for place, each in enumerate(proofs):
        host, check, at = hosts[each.host], plain(each.check), _seconds(each.at)
        rows.append(
            {
                "id": first + place,
                "run": run,
                "host": host,
                "check": check,
                "baseline": plain(each.baseline),
                "machine_id": plain(each.machine_id) if each.machine_id else None,
                "asked": _seconds(each.asked),
                "at": at,
                "visit": earlier.get((host, check, at), visits.get(host, 0)),
                "keys": encoded(each.keys),
                "subjects": encoded(each.subjects),
            }
        )
    if rows:
        connection.execute(insert(t.proof), rows)


def _hosts(
    run: RecordedFixRun, actions: Sequence[RecordedAction], proofs: Sequence[FixProof]
) -> dict[str, None]:
    told = [each.host for each in run.hosts], [each.host for each in actions]
    return dict.fromkeys([*told[0], *told[1], *(each.host for each in proofs)])


_MACHINE = (
    select(func.coalesce(t.boot.c.machine_id, t.visit.c.machine_id))
    .select_from(t.visit.outerjoin(t.boot, t.boot.c.id == t.visit.c.boot))
    .where(
        t.visit.c.host == t.proof.c.host,
        t.visit.c.at <= t.proof.c.at,
        or_(t.visit.c.boot.is_not(None), t.visit.c.machine_id.is_not(None)),
    )
    .order_by(t.visit.c.id.desc())
    .limit(1)
    .correlate(t.proof)
    .scalar_subquery()
)
_PROOFS = (
    select(t.proof, t.host.c.name.label("host_name"), t.fix_run.c.name, t.fix_run.c.plan_name)
    .join(t.host, t.host.c.id == t.proof.c.host)
    .join(t.fix_run, t.fix_run.c.id == t.proof.c.run)
    .order_by(t.proof.c.at, t.proof.c.id)
)


def proofs(connection: Connection, host: str | None) -> list[FixProof]:
    """Oldest first; without those of a machine that was not visited under its host's name then."""
    own = t.proof.c.machine_id
    asked = _PROOFS.where(or_(own.is_(None), func.coalesce(_MACHINE, own) == own))
    return [_proof(row) for row in connection.execute(_of_host(asked, host))]


_SEEN = t.visit.alias("seen_last")
_SINCE_SEEN = (
    _PROOFS.add_columns(t.finding_span.c.id.label("span"), _SEEN.c.id.label("seen"))
    .join(
        t.finding_span,
        and_(
            t.finding_span.c.host == t.proof.c.host,
            t.finding_span.c.check == t.proof.c.check,
        ),
    )
    .join(_SEEN, _SEEN.c.id == LAST_SEEN)
    .where(
        t.finding_span.c.host.in_(bindparam("hosts", expanding=True)),
        t.finding_span.c.ended.is_(None),
        t.proof.c.asked > _SEEN.c.at,
    )
)


def proofs_since(connection: Connection, hosts: Collection[int]) -> dict[int, FixProof]:
    """The last word of runs of fixes on the check of each open span of these hosts since the span
    was last seen, by span: by the clock, and by the order in which both were recorded."""
    rows = connection.execute(_SINCE_SEEN, {"hosts": list(hosts)})
    newest = {row.span: row for row in rows}
    return {span: _proof(row) for span, row in newest.items() if row.seen <= row.visit}


def _proof(row: Any) -> FixProof:
    return FixProof(
        run=row.name,
        plan=row.plan_name,
        host=row.host_name,
        check=row.check,
        baseline=row.baseline,
        machine_id=row.machine_id,
        asked=age.instant(row.asked),
        at=age.instant(row.at),
        keys=typed.decode(row.keys, tuple[str, ...]),
        subjects=typed.decode(row.subjects, tuple[str, ...]),
        visit=row.visit,
    )


def runs(
    connection: Connection, host: str | None, limit: int | None, after: float | None
) -> list[RecordedFixRun]:
    """Newest first, each with its hosts, or with this one alone."""
    asked = select(t.fix_run).order_by(t.fix_run.c.started.desc(), t.fix_run.c.id.desc())
    came = select(t.fix_host, t.host.c.name.label("host_name")).join(
        t.host, t.host.c.id == t.fix_host.c.host
    )
    if host is not None:
        came = came.where(t.host.c.name == plain(host))
        asked = asked.where(t.fix_run.c.id.in_(came.with_only_columns(t.fix_host.c.run)))
    if after is not None:
        asked = asked.where(t.fix_run.c.started >= after)
    if limit is not None:
        asked = asked.limit(limit)
    rows = connection.execute(asked).all()
    hosts: dict[int, list[FixHost]] = {row.id: [] for row in rows}
    for row in connection.execute(came.order_by(t.fix_host.c.id)):
        if row.run in hosts:
            hosts[row.run].append(FixHost(host=row.host_name, outcome=row.outcome, why=row.why))
    return [_run(row, tuple(hosts[row.id])) for row in rows]


def _run(row: Any, hosts: tuple[FixHost, ...]) -> RecordedFixRun:
    return RecordedFixRun(
        id=row.name,
        kind=row.kind,
        plan=row.plan_name,
        digest=row.plan,
        author=row.author,
        approvals=typed.decode(row.approvals, tuple[str, ...]),
        by=row.by,
        folder=row.folder,
        started=row.began,
        seconds=row.seconds,
        exit_code=row.exit_code,
        outcomes=typed.decode(row.outcomes, dict[str, int]),
        hosts=hosts,
    )


def actions(connection: Connection, host: str | None) -> list[RecordedAction]:
    """Oldest first."""
    asked = (
        select(
            t.action,
            t.host.c.name.label("host_name"),
            t.fix_run.c.name.label("run_name"),
            t.fix_run.c.kind,
            t.fix_run.c.plan_name,
        )
        .join(t.host, t.host.c.id == t.action.c.host)
        .join(t.fix_run, t.fix_run.c.id == t.action.c.run)
        .order_by(t.action.c.at, t.action.c.id)
    )
    return [_action(row) for row in connection.execute(_of_host(asked, host))]


def _action(row: Any) -> RecordedAction:
    return RecordedAction(
        run=row.run_name,
        kind=row.kind,
        plan=row.plan_name,
        host=row.host_name,
        step=row.step,
        fix=row.fix,
        subjects=typed.decode(row.subjects, tuple[str, ...]),
        resource=row.resource,
        before=row.before,
        after=row.after,
        outcome=row.outcome,
        at=age.instant(row.at),
    )


def failed(
    connection: Connection, outcomes: Collection[str], after: float, in_doubt: str
) -> list[FailedFix]:
    """What ended so since then: each fix of a host once for each folder of a run.

    A run without an end leaves `in_doubt` what its controller was doing: that has not failed.
    """
    machine = (
        select(func.coalesce(t.boot.c.machine_id, t.visit.c.machine_id))
        .select_from(t.visit.outerjoin(t.boot, t.boot.c.id == t.visit.c.boot))
        .where(t.visit.c.host == t.action.c.host, t.visit.c.at <= t.action.c.at)
        .order_by(t.visit.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    rows = connection.execute(
        select(t.fix_run.c.folder, t.host.c.name, t.action.c.fix, machine.label("machine"))
        .select_from(
            t.action.join(t.fix_run, t.fix_run.c.id == t.action.c.run).join(
                t.host, t.host.c.id == t.action.c.host
            )
        )
        .where(
            t.fix_run.c.kind == "apply",
            t.action.c.outcome.in_(outcomes),
            or_(
                t.action.c.outcome != in_doubt,
                t.fix_run.c.exit_code.is_not(None),
            ),
            t.action.c.at >= after,
        )
        .order_by(t.action.c.id)
    )
    return [
        FailedFix(folder=row.folder, host=row.name, fix=row.fix, machine_id=row.machine or "")
        for row in {(row.folder, row.name, row.fix): row for row in rows}.values()
    ]


def _of_host(asked: Select[Any], host: str | None) -> Select[Any]:
    return asked if host is None else asked.where(t.host.c.name == plain(host))


def _seconds(at: str) -> float:
    """Of a moment as a plan or journal says it; now for a text that is none."""
    found = age.seconds_of(at)
    return time.time() if found is None else found
