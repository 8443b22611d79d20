"""What people did beside the runs: plans of fixes, what they changed, what diagnose watched."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, insert, select

from nodevet import age
from nodevet.history.model import RecordedAction, RecordedIncident
from nodevet.store import schema as t
from nodevet.store.contents import content, keep
from nodevet.store.ids import host_id, next_id
from nodevet.store.moments import instant
from nodevet.store.text import encoded, plain

if TYPE_CHECKING:
    from nodevet.resource import State
    from nodevet.result import Result, StepResult

MOST_OF_A_STATE = 4000  # characters


def record_plan(connection: Connection, digest: str, text: bytes, created: str) -> None:
    known = select(t.plan.c.id).where(t.plan.c.sha256 == digest)
    if connection.execute(known).scalar() is None:
        connection.execute(
            insert(t.plan).values(
                id=next_id(connection, t.plan),
                sha256=digest,
                created=instant(created),
                text=keep(connection, text),
            )
        )


def plan_text(connection: Connection, digest: str) -> bytes | None:
    blob = connection.execute(select(t.plan.c.text).where(t.plan.c.sha256 == digest)).scalar()
    return None if blob is None else content(connection, blob)


def record_result(connection: Connection, result: "Result", run: str) -> None:
    """See Store.record_result."""
    connection.execute(delete(t.action).where(t.action.c.run == plain(run)))
    number = next_id(connection, t.action)
    rows: list[dict[str, Any]] = []
    for host in result.hosts:
        known = host_id(connection, host.host) if host.steps else 0
        for step in host.steps:
            for resource, before, after in _changes(step):
                rows.append(
                    {
                        "id": number + len(rows),
                        "run": plain(run),
                        "plan": result.digest,
                        "host": known,
                        "step": plain(step.id),
                        "resource": plain(resource),
                        "before": plain(before),
                        "after": plain(after),
                        "outcome": step.outcome.value,
                        "at": instant(result.started),
                    }
                )
    if rows:
        connection.execute(insert(t.action), rows)


def _changes(step: "StepResult") -> Iterator[tuple[str, str, str]]:
    """Each resource that a step changes, with what it was and what it is."""
    after = {state.resource: state for state in step.after}
    for state in step.before:
        resource = f"{state.resource.kind} {state.resource.name}"
        yield resource, _short(state), _short(after.get(state.resource))


def _short(state: "State | None") -> str:
    if state is None:
        return ""
    if not state.exists:
        return "absent"
    return encoded(state.value).decode()[:MOST_OF_A_STATE]


def actions(connection: Connection, host: str | None) -> list[RecordedAction]:
    asked = (
        select(t.action, t.host.c.name.label("host_name"))
        .join(t.host, t.host.c.id == t.action.c.host)
        .order_by(t.action.c.at, t.action.c.id)
    )
    if host is not None:
        asked = asked.where(t.host.c.name == plain(host))
    return [action_of(row) for row in connection.execute(asked)]


def action_of(row: Any) -> RecordedAction:
    return RecordedAction(
        run=row.run,
        plan=row.plan,
        host=row.host_name,
        step=row.step,
        resource=row.resource,
        before=row.before,
        after=row.after,
        outcome=row.outcome,
        at=age.instant(row.at),
    )


def record_incident(
    connection: Connection, hosts: Mapping[str, str], bundle: bytes, at: str
) -> None:
    """See Store.record_incident."""
    kept, number = keep(connection, bundle), next_id(connection, t.incident)
    rows = [
        {
            "id": number + place,
            "host": host_id(connection, host),
            "at": instant(at),
            "cause": plain(cause),
            "bundle": kept,
        }
        for place, (host, cause) in enumerate(hosts.items())
    ]
    if rows:
        connection.execute(insert(t.incident), rows)


def incidents(connection: Connection, host: str | None) -> list[RecordedIncident]:
    asked = (
        select(t.incident, t.host.c.name.label("host_name"))
        .join(t.host, t.host.c.id == t.incident.c.host)
        .order_by(t.incident.c.at, t.incident.c.id)
    )
    if host is not None:
        asked = asked.where(t.host.c.name == plain(host))
    return [incident_of(row) for row in connection.execute(asked)]


def incident_of(row: Any) -> RecordedIncident:
    return RecordedIncident(
        host=row.host_name, at=age.instant(row.at), cause=row.cause, bundle=row.bundle
    )
