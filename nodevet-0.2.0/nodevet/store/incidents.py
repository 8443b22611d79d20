"""The incidents that `nodevet diagnose` recorded."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from nodevet.base import age
from nodevet.store import schema as t
from nodevet.store.blobs import keep
from nodevet.store.moments import instant
from nodevet.store.records.model import RecordedIncident
from nodevet.store.rows import add_rows, host_id, plain


def record(connection: Connection, hosts: Mapping[str, str], bundle: bytes, at: str) -> None:
    """See Store.record_incident."""
    blob = keep(connection, bundle)
    rows = (
        {
            "host": host_id(connection, host),
            "at": instant(at),
            "cause": plain(cause),
            "bundle": blob,
        }
        for host, cause in hosts.items()
    )
    add_rows(connection, t.incident, rows)


def incidents(connection: Connection, host: str | None) -> list[RecordedIncident]:
    query = (
        select(t.incident, t.host.c.name.label("host_name"))
        .join(t.host, t.host.c.id == t.incident.c.host)
        .order_by(t.incident.c.at, t.incident.c.id)
    )
    if host is not None:
        query = query.where(t.host.c.name == plain(host))
    return [_incident(row) for row in connection.execute(query)]


def _incident(row: Any) -> RecordedIncident:
    return RecordedIncident(
        host=row.host_name, at=age.instant(row.at), cause=row.cause, bundle=row.bundle
    )
