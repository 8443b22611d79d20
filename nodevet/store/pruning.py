"""Evidence that is not kept for ever: visits are thinned out, and what nothing refers to goes."""

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, delete, select, update

from nodevet import typed
from nodevet.history.retention import Retention, thinned
from nodevet.store import schema as t
from nodevet.store.contents import contents

CHUNK = 500  # hosts or blobs that are looked at together


def thin(connection: Connection, policy: Retention, now: float, *, dry_run: bool = False) -> int:
    """How many visits lost their evidence; with `dry_run`: would lose it."""
    hosts = connection.execute(select(t.host.c.id)).scalars().all()
    v = t.visit.c
    count = 0
    for begin in range(0, len(hosts), CHUNK):
        rows = connection.execute(
            select(v.host, v.id, v.at).where(
                v.host.in_(hosts[begin : begin + CHUNK]), v.volatile.is_not(None)
            )
        )
        listed: dict[int, list[tuple[int, float]]] = {}
        for host, number, at in rows:
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
        count += len(going)
    return count


def sweep(connection: Connection) -> int:
    """How many blobs went: those that nothing refers to."""
    b = t.blob.c
    rows = connection.execute(select(b.id, b.base, b.sha256)).all()
    bases = {row.id: row.base for row in rows}
    by_sha = {bytes(row.sha256): row.id for row in rows if row.sha256 is not None}
    v, h = t.visit.c, t.host.c
    manifests = _of(connection, v.steady) | _of(connection, h.steady)
    kept = manifests | _of(connection, v.volatile) | _of(connection, v.judged)
    kept |= _of(connection, h.keyframe) | _of(connection, h.judged)
    kept |= _of(connection, t.plan.c.text) | _of(connection, t.incident.c.bundle)
    for text in _texts(connection, manifests):
        shas = typed.decode(text, dict[str, str]).values()
        kept |= {by_sha[sha] for sha in map(bytes.fromhex, shas) if sha in by_sha}
    kept |= {bases[each] for each in kept if bases.get(each) is not None}
    going = [{"_id": each} for each in bases.keys() - kept]
    if going:
        connection.execute(delete(t.blob).where(b.id == bindparam("_id")), going)
    return len(going)


def _of(connection: Connection, column: object) -> set[int]:
    asked = select(column).where(column.is_not(None)).distinct()  # type: ignore[call-overload,attr-defined]
    return set(connection.execute(asked).scalars())


def _texts(connection: Connection, ids: Iterable[int]) -> Iterable[bytes]:
    listed = sorted(ids)
    for begin in range(0, len(listed), CHUNK):
        yield from contents(connection, listed[begin : begin + CHUNK]).values()
