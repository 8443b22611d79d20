"""What visits read, put together again: whole, or some sections of it."""

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import Connection, select

from nodevet.base import typed
from nodevet.base.last_few import LastFew
from nodevet.store import documents
from nodevet.store import schema as t
from nodevet.store.contents import contents

Manifest = Mapping[str, str]  # section -> SHA-256 of what was steady in it


def of_visits(
    connection: Connection, visits: Collection[int], sections: Collection[str] | None = None
) -> dict[int, bytes]:
    """The evidence of some visits, by the visit's id; without those whose evidence is not kept.
    Of some sections it is not told how long each took."""
    v = t.visit.c
    kept = connection.execute(
        select(v.id, v.steady, v.volatile).where(v.id.in_(visits), v.volatile.is_not(None))
    ).all()
    steady = {row.steady for row in kept if row.steady is not None}
    whole = contents(connection, steady | {row.volatile for row in kept})
    manifests = {each: typed.decode(whole[each], dict[str, str]) for each in steady}
    wanted = {each: _wanted(names, sections) for each, names in manifests.items()}
    pieces = _pieces(connection, wanted.values())
    alike = None if sections is None else LastFew()
    return {
        row.id: whole[row.volatile]
        if row.steady is None
        else documents.together(
            manifests[row.steady],
            {name: pieces[sha] for name, sha in wanted[row.steady].items()},
            whole[row.volatile],
            alike,
        )
        for row in kept
    }


def _wanted(names: Manifest, sections: Collection[str] | None) -> Manifest:
    if sections is None:
        return names
    return {
        name: sha for name, sha in names.items() if name.removeprefix(documents.EARLIER) in sections
    }


def _pieces(connection: Connection, manifests: Iterable[Manifest]) -> dict[str, bytes]:
    """What manifests name, by its SHA-256."""
    b = t.blob.c
    shas = {bytes.fromhex(sha) for names in manifests for sha in names.values()}
    ids = {
        row.id: bytes(row.sha256).hex()
        for row in connection.execute(select(b.id, b.sha256).where(b.sha256.in_(shas)))
    }
    return {ids[number]: piece for number, piece in contents(connection, ids).items()}
