"""The hosts whose steady values differ between two runs, by the hashes of their sections."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select

from nodevet.base import typed
from nodevet.model import Status
from nodevet.store import runs
from nodevet.store import schema as t
from nodevet.store.blobs import contents
from nodevet.store.rows import OF_ANY_KIND, plain

CHUNK = 500  # ids in one query


def unlike_hosts(
    connection: Connection, before: str, after: str, sections: frozenset[str]
) -> dict[str, frozenset[str]]:
    """See Store.unlike_hosts."""
    earlier, later = _steady(connection, before), _steady(connection, after)
    pairs = {host: (earlier.get(host), later.get(host)) for host in {**later, **earlier}}
    changed = {host: pair for host, pair in pairs.items() if None in pair or pair[0] != pair[1]}
    blobs = {blob for pair in changed.values() for blob in pair if blob is not None}
    manifests = _manifests(connection, blobs)
    return {
        host: differing
        for host, (old, new) in changed.items()
        if (differing := _differing(manifests.get(old), manifests.get(new), sections))
    }


def _steady(connection: Connection, run: str) -> dict[str, int | None]:
    """The blob of the steady values of each host, in the order of visits; None of a host that was
    not vetted or whose evidence is not kept."""
    v = t.visit.c
    query = (
        select(t.host.c.name, v.status, v.steady)
        .join(t.host, t.host.c.id == v.host)
        .where(v.run == runs.id_of(run).scalar_subquery(), v.superseded.is_(False))
        .order_by(v.id)
    )
    rows = connection.execute(query)
    return {row.name: row.steady if row.status == Status.VETTED.value else None for row in rows}


def _manifests(connection: Connection, blobs: Collection[int]) -> dict[Any, Mapping[str, str]]:
    return {
        blob: typed.decode(text, dict[str, str])
        for chunk in _chunks(blobs)
        for blob, text in contents(connection, chunk).items()
    }


def _differing(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None, sections: frozenset[str]
) -> frozenset[str]:
    """The sections that differ; all of them if one side is not known."""
    if before is None or after is None:
        return sections
    return frozenset(name for name in sections if before.get(name) != after.get(name))


def holders(connection: Connection, parts: Collection[str]) -> set[str]:
    """See Store.holders."""
    p = t.part.c
    query = select(t.host.c.name).join(t.place, t.place.c.host == t.host.c.id).distinct()
    return {
        host
        for chunk in _chunks({plain(part) for part in parts})
        for host in connection.execute(
            query.where(t.place.c.part.in_(select(p.id).where(OF_ANY_KIND, p.name.in_(chunk))))
        ).scalars()
    }


def _chunks(items: Iterable[Any]) -> Iterable[list[Any]]:
    ordered = sorted(items)
    return (ordered[offset : offset + CHUNK] for offset in range(0, len(ordered), CHUNK))
