"""What diagnose watched, and what it came to."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from nodevet.base import age
from nodevet.store import schema as t
from nodevet.store.contents import keep
from nodevet.store.ids import host_id, next_id
from nodevet.store.moments import instant
from nodevet.store.records.model import RecordedIncident
from nodevet.store.text import plain


def record(connection: Connection, hosts: Mapping[str, str], bundle: bytes, at: str) -> None:
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


def recorded(connection: Connection, host: str | None) -> list[RecordedIncident]:
    asked = (
        select(t.incident, t.host.c.name.label("host_name"))
        .join(t.host, t.host.c.id == t.incident.c.host)
        .order_by(t.incident.c.at, t.incident.c.id)
    )
    if host is not None:
        asked = asked.where(t.host.c.name == plain(host))
    return [_incident(row) for row in connection.execute(asked)]


def _incident(row: Any) -> RecordedIncident:
    return RecordedIncident(
        host=row.host_name, at=age.instant(row.at), cause=row.cause, bundle=row.bundle
    )
