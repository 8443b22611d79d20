"""Evidence that is not kept for ever: visits are thinned out, and what nothing refers to goes.

A little at a time, each in a transaction of its own, so that a sweep that records meanwhile waits
for none of it long; ended at any instant, the store is whole and the rest goes the next time.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, select, update

from nodevet.base import typed
from nodevet.store import schema as t
from nodevet.store.contents import contents
from nodevet.store.records.retention import Retention, thinned

CHUNK = 500  # hosts or blobs that are looked at together
MOST = 4000  # blobs that go together


class Unused(NamedTuple):
    """What nothing referred to."""

    blobs: Sequence[int]
    used: frozenset[int]  # what was referred to
    visit: int  # the last one by then


def hosts(connection: Connection) -> Iterator[Sequence[int]]:
    """The ids of all hosts, some at a time."""
    return _some(connection.execute(select(t.host.c.id).order_by(t.host.c.id)).scalars().all())


def thin(
    connection: Connection,
    hosts: Collection[int],
    policy: Retention,
    now: float,
    *,
    dry_run: bool = False,
) -> int:
    """How many visits of these hosts lost their evidence; with `dry_run`: would lose it."""
    v = t.visit.c
    listed: dict[int, list[tuple[int, float]]] = {}
    asked = select(v.host, v.id, v.at).where(v.host.in_(hosts), v.volatile.is_not(None))
    for host, number, at in connection.execute(asked):
        listed.setdefault(host, []).append((number, at))
    going = [
        {"_id": number} for visits in listed.values() for number in thinned(visits, policy, now)
    ]
    if going and not dry_run:
        connection.execute(
            update(t.visit)
            .where(v.id == bindparam("_id"))
            .values(steady=None, volatile=None, thinned=True),
            going,
        )
    return len(going)


def unused(connection: Connection) -> Unused:
    """What nothing refers to. It is asked before `sweep`, which asks what was recorded since."""
    b = t.blob.c
    last = connection.execute(select(func.max(t.visit.c.id))).scalar() or 0  # before all else
    bases: dict[int, int | None] = {}
    by_sha: dict[bytes, int] = {}
    for number, base, sha in connection.execute(select(b.id, b.base, b.sha256)):
        bases[number] = base
        if sha is not None:
            by_sha[bytes(sha)] = number
    used = _used(connection, by_sha, since=0, known=frozenset())
    used |= {base for each in used if (base := bases.get(each)) is not None}
    going = sorted(bases.keys() - used, key=lambda each: (bases[each] is None, each))
    return Unused(going, frozenset(used), last)  # what has a base goes before it


def portions(found: Unused) -> Iterator[Sequence[int]]:
    return _some(found.blobs, MOST)


def sweep(connection: Connection, some: Sequence[int], found: Unused) -> int:
    """How many of these blobs went: those that nothing refers to since, either."""
    b = t.blob.c
    rows = [
        row
        for part in _some(some)
        for row in connection.execute(select(b.id, b.sha256).where(b.id.in_(part)))
    ]
    by_sha = {bytes(row.sha256): row.id for row in rows if row.sha256 is not None}
    used = _used(connection, by_sha, since=found.visit, known=found.used) - found.used
    for part in _some(sorted(used)):
        used |= _of(connection, b.base, b.id.in_(part))
    going = [{"_id": row.id} for row in rows if row.id not in used]
    if going:
        connection.execute(delete(t.blob).where(b.id == bindparam("_id")), going)
    return len(going)


def _used(
    connection: Connection, by_sha: dict[bytes, int], *, since: int, known: frozenset[int]
) -> set[int]:
    """What is referred to: by visits after one, and by all else. What manifests name is looked up
    by its SHA-256; those that are known name nothing new."""
    v, h = t.visit.c, t.host.c
    newer = v.id > since
    manifests = _of(connection, v.steady, newer) | _of(connection, h.steady)
    used = manifests | _of(connection, v.volatile, newer) | _of(connection, v.judged, newer)
    used |= _of(connection, h.keyframe) | _of(connection, h.judged)
    used |= _of(connection, t.plan.c.text) | _of(connection, t.incident.c.bundle)
    for part in _some(sorted(manifests - known)):
        for text in contents(connection, part).values():
            shas = typed.decode(text, dict[str, str]).values()
            used |= {by_sha[sha] for sha in map(bytes.fromhex, shas) if sha in by_sha}
    return used


def _of(connection: Connection, column: Any, *where: ColumnElement[bool]) -> set[int]:
    asked = select(column).where(column.is_not(None), *where).distinct()
    return set(connection.execute(asked).scalars())


def _some(listed: Sequence[int], size: int = CHUNK) -> Iterator[Sequence[int]]:
    return (listed[begin : begin + size] for begin in range(0, len(listed), size))
