"""Prune evidence: thin out visits, then delete blobs that nothing refers to.

It works in small transactions, so that a sweep that records at the same time does not wait long. If
it is killed, the store stays consistent, and the next `nodevet prune` finishes.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, func, select, update

from nodevet.base import typed
from nodevet.store import schema as t
from nodevet.store.blobs import contents
from nodevet.store.records.retention import Retention, visits_to_thin

CHUNK = 500  # hosts or blobs in one query
MOST = 4000  # blobs that are deleted in one transaction


class Unused(NamedTuple):
    """The blobs that nothing refers to."""

    blobs: Sequence[int]
    used: frozenset[int]  # blobs that are in use
    visit: int  # the last visit at that time


def hosts(connection: Connection) -> Iterator[Sequence[int]]:
    """The ids of all hosts, in chunks."""
    return _chunks(connection.execute(select(t.host.c.id).order_by(t.host.c.id)).scalars().all())


def thin(
    connection: Connection,
    hosts: Collection[int],
    policy: Retention,
    now: float,
    *,
    dry_run: bool = False,
) -> int:
    """Remove evidence of visits to these hosts, and return their number; with `dry_run` only
    count."""
    v = t.visit.c
    visits_of: dict[int, list[tuple[int, float]]] = {}
    query = select(v.host, v.id, v.at).where(v.host.in_(hosts), v.volatile.is_not(None))
    for host, number, at in connection.execute(query):
        visits_of.setdefault(host, []).append((number, at))
    kept = set(connection.execute(_last_reported(hosts)).scalars())
    rows = [
        {"_id": number}
        for visits in visits_of.values()
        for number in visits_to_thin(visits, policy, now, kept)
    ]
    if rows and not dry_run:
        connection.execute(
            update(t.visit)
            .where(v.id == bindparam("_id"))
            .values(steady=None, volatile=None, thinned=True),
            rows,
        )
    return len(rows)


def _last_reported(hosts: Collection[int]) -> Select[Any]:
    """The visits whose evidence the next sweep of that name, or check by hand, compares with."""
    v, r = t.visit.c, t.run.c
    return (
        select(func.max(v.id))
        .join(t.run, r.id == v.run)
        .where(v.host.in_(hosts), v.volatile.is_not(None), r.exit_code.is_not(None))
        .group_by(v.host, r.series)
    )


def unused_blobs(connection: Connection) -> Unused:
    """The blobs that nothing refers to. `sweep` checks the visits that are recorded after this."""
    b = t.blob.c
    last = connection.execute(select(func.max(t.visit.c.id))).scalar() or 0  # read this first
    bases: dict[int, int | None] = {}
    by_sha: dict[bytes, int] = {}
    for number, base, sha in connection.execute(select(b.id, b.base, b.sha256)):
        bases[number] = base
        if sha is not None:
            by_sha[bytes(sha)] = number
    used = _used_blobs(connection, by_sha, since=0, known=frozenset())
    used |= {base for blob in used if (base := bases.get(blob)) is not None}
    sorted_blobs = sorted(bases.keys() - used, key=lambda blob: (bases[blob] is None, blob))
    return Unused(sorted_blobs, frozenset(used), last)  # blobs go before their bases


def portions(unused_blobs: Unused) -> Iterator[Sequence[int]]:
    return _chunks(unused_blobs.blobs, MOST)


def sweep(connection: Connection, portion: Sequence[int], unused_blobs: Unused) -> int:
    """Delete the blobs of a portion that are still unused, and return their number."""
    b = t.blob.c
    rows = [
        row
        for part in _chunks(portion)
        for row in connection.execute(select(b.id, b.sha256).where(b.id.in_(part)))
    ]
    by_sha = {bytes(row.sha256): row.id for row in rows if row.sha256 is not None}
    used = (
        _used_blobs(connection, by_sha, since=unused_blobs.visit, known=unused_blobs.used)
        - unused_blobs.used
    )
    for part in _chunks(sorted(used)):
        used |= _ids(connection, b.base, b.id.in_(part))
    deleted = [{"_id": row.id} for row in rows if row.id not in used]
    if deleted:
        connection.execute(delete(t.blob).where(b.id == bindparam("_id")), deleted)
    return len(deleted)


def _used_blobs(
    connection: Connection, by_sha: dict[bytes, int], *, since: int, known: frozenset[int]
) -> set[int]:
    """The blobs that visits after `since`, hosts, plans and incidents refer to, directly or through
    manifests. `known`: manifests that need no second look."""
    v, h = t.visit.c, t.host.c
    newer = v.id > since
    manifests = _ids(connection, v.steady, newer) | _ids(connection, h.steady)
    used = manifests | _ids(connection, v.volatile, newer) | _ids(connection, v.judged, newer)
    used |= _ids(connection, h.keyframe) | _ids(connection, h.judged)
    used |= _ids(connection, t.plan.c.text) | _ids(connection, t.incident.c.bundle)
    for part in _chunks(sorted(manifests - known)):
        for text in contents(connection, part).values():
            shas = typed.decode(text, dict[str, str]).values()
            used |= {by_sha[sha] for sha in map(bytes.fromhex, shas) if sha in by_sha}
    return used


def _ids(connection: Connection, column: Any, *where: ColumnElement[bool]) -> set[int]:
    asked = select(column).where(column.is_not(None), *where).distinct()
    return set(connection.execute(asked).scalars())


def _chunks(items: Sequence[int], size: int = CHUNK) -> Iterator[Sequence[int]]:
    return (items[offset : offset + size] for offset in range(0, len(items), size))
