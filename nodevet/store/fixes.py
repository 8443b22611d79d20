"""Plans of fixes, the runs that applied them, their actions and proofs."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, or_, select

from nodevet.base import age, typed
from nodevet.store import schema as t
from nodevet.store.blobs import content, keep
from nodevet.store.moments import LAST_SEEN
from nodevet.store.records.model import (
    FailedFix,
    FixHost,
    FixProof,
    RecordedAction,
    RecordedFixRun,
    RecordedPlan,
)
from nodevet.store.rows import add_rows, encoded, host_id, next_id, plain


def record_plan(connection: Connection, plan: RecordedPlan, text: bytes) -> None:
    """Record a plan, unless it is recorded already."""
    query = select(t.plan.c.id).where(t.plan.c.sha256 == plan.digest)
    if connection.execute(query).scalar() is not None:
        return
    number = next_id(connection, t.plan)
    connection.execute(
        insert(t.plan).values(
            id=number,
            sha256=plan.digest,
            name=plain(plan.id),
            author=plain(plan.author),
            created=_unix_time(plan.created),
            text=keep(connection, text),
        )
    )
    add_rows(
        connection,
        t.planned,
        (
            {"plan": number, "host": host_id(connection, host), "fixes": encoded(fixes)}
            for host, fixes in plan.hosts.items()
        ),
    )


def plan_text(connection: Connection, digest: str) -> bytes | None:
    blob = connection.execute(select(t.plan.c.text).where(t.plan.c.sha256 == digest)).scalar()
    return None if blob is None else content(connection, blob)


def plans(connection: Connection, host: str | None) -> list[RecordedPlan]:
    """Oldest first."""
    query = (
        select(t.plan, t.planned.c.fixes, t.host.c.name.label("host_name"))
        .outerjoin(t.planned, t.planned.c.plan == t.plan.c.id)
        .outerjoin(t.host, t.host.c.id == t.planned.c.host)
        .order_by(t.plan.c.created, t.plan.c.id, t.planned.c.id)
    )
    hosts: dict[str, dict[str, tuple[str, ...]]] = {}
    rows = connection.execute(_of_host(query, host)).all()
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
    """Record a run of fixes, replacing an earlier record of it."""
    query = connection.execute(select(t.fix_run.c.id).where(t.fix_run.c.name == plain(run.id)))
    number = query.scalar()
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
            started=_unix_time(run.started),
            began=plain(run.started),
            seconds=run.seconds,
            exit_code=run.exit_code,
            outcomes=encoded(run.outcomes),
        )
    )
    hosts = {name: host_id(connection, name) for name in _hosts(run, actions, proofs)}
    host_rows = (
        {
            "run": number,
            "host": hosts[host.host],
            "outcome": plain(host.outcome),
            "why": plain(host.why),
        }
        for host in run.hosts
    )
    add_rows(connection, t.fix_host, host_rows)
    action_rows = (
        {
            "run": number,
            "host": hosts[action.host],
            "step": plain(action.step),
            "fix": plain(action.fix),
            "subjects": encoded(action.subjects),
            "resource": plain(action.resource),
            "before": plain(action.before),
            "after": plain(action.after),
            "outcome": plain(action.outcome),
            "at": _unix_time(action.at),
        }
        for action in actions
    )
    add_rows(connection, t.action, action_rows)
    _record_proofs(connection, number, hosts, proofs, earlier)


ProofKey = tuple[int, str, float]  # host, check, at


def _proofs_of(connection: Connection, run: int) -> dict[ProofKey, int]:
    """The recorded proofs of a run, each with the last visit before it."""
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
    """Record proofs. `earlier`: see `_proofs_of`; a proof that was recorded before keeps its
    visit."""
    fixed_hosts = select(t.fix_host.c.host).where(t.fix_host.c.run == run)
    host_rows = connection.execute(
        select(t.host.c.id, t.host.c.visit).where(t.host.c.id.in_(fixed_hosts))
    )
    visits = {row.id: row.visit or 0 for row in host_rows}
    rows = []
    for proof in proofs:
        host, check, at = hosts[proof.host], plain(proof.check), _unix_time(proof.at)
        rows.append(
            {
                "run": run,
                "host": host,
                "check": check,
                "baseline": plain(proof.baseline),
                "machine_id": plain(proof.machine_id) if proof.machine_id else None,
                "asked": _unix_time(proof.asked),
                "at": at,
                "visit": earlier.get((host, check, at), visits.get(host, 0)),
                "keys": encoded(proof.keys),
                "subjects": encoded(proof.subjects),
            }
        )
    add_rows(connection, t.proof, rows)


def _hosts(
    run: RecordedFixRun, actions: Sequence[RecordedAction], proofs: Sequence[FixProof]
) -> dict[str, None]:
    names = [item.host for item in run.hosts], [item.host for item in actions]
    return dict.fromkeys([*names[0], *names[1], *(item.host for item in proofs)])


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
    """Oldest first, without proofs of another machine than the visits to the host saw then."""
    own = t.proof.c.machine_id
    query = _PROOFS.where(or_(own.is_(None), func.coalesce(_MACHINE, own) == own))
    return [_proof(row) for row in connection.execute(_of_host(query, host))]


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
    """By id of each open span of these hosts: the last proof of its check since the span was last
    seen, both by the clock and by the order of records."""
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
    """Newest first, each with all its hosts, or only with `host`."""
    query = select(t.fix_run).order_by(t.fix_run.c.started.desc(), t.fix_run.c.id.desc())
    hosts_query = select(t.fix_host, t.host.c.name.label("host_name")).join(
        t.host, t.host.c.id == t.fix_host.c.host
    )
    if host is not None:
        hosts_query = hosts_query.where(t.host.c.name == plain(host))
        query = query.where(t.fix_run.c.id.in_(hosts_query.with_only_columns(t.fix_host.c.run)))
    if after is not None:
        query = query.where(t.fix_run.c.started >= after)
    if limit is not None:
        query = query.limit(limit)
    rows = connection.execute(query).all()
    hosts: dict[int, list[FixHost]] = {row.id: [] for row in rows}
    for row in connection.execute(hosts_query.order_by(t.fix_host.c.id)):
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
    query = (
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
    return [_action(row) for row in connection.execute(_of_host(query, host))]


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


def failed_fixes(
    connection: Connection, outcomes: Collection[str], after: float, in_doubt: str
) -> list[FailedFix]:
    """The fixes that ended with these outcomes since `after`: once for each host and run folder.

    In a run without an end the outcome `in_doubt` is no failure: its controller may still work.
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


def _of_host(query: Select[Any], host: str | None) -> Select[Any]:
    return query if host is None else query.where(t.host.c.name == plain(host))


def _unix_time(at: str) -> float:
    """Seconds since 1970 of a time in a plan or journal; now if the text is not a time."""
    seconds = age.seconds_of(at)
    return time.time() if seconds is None else seconds
