"""The evidence of visits, joined again: all of it, or some sections."""

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import Connection, select

from nodevet.base import typed
from nodevet.base.last_few import LastFew
from nodevet.store import documents
from nodevet.store import schema as t
from nodevet.store.blobs import contents

Manifest = Mapping[str, str]  # section -> SHA-256 of its steady values


def of_visits(
    connection: Connection, visits: Collection[int], sections: Collection[str] | None = None
) -> dict[int, bytes]:
    """The evidence of visits by their ids, without visits whose evidence was pruned. With
    `sections` it has no times of sections."""
    v = t.visit.c
    rows = connection.execute(
        select(v.id, v.steady, v.volatile).where(v.id.in_(visits), v.volatile.is_not(None))
    ).all()
    steady = {row.steady for row in rows if row.steady is not None}
    blobs = contents(connection, steady | {row.volatile for row in rows})
    manifests = {blob: typed.decode(blobs[blob], dict[str, str]) for blob in steady}
    selected = {blob: _selected(names, sections) for blob, names in manifests.items()}
    pieces = _pieces(connection, selected.values())
    alike = None if sections is None else LastFew()
    return {
        row.id: blobs[row.volatile]
        if row.steady is None
        else documents.join_document(
            manifests[row.steady],
            {name: pieces[sha] for name, sha in selected[row.steady].items()},
            blobs[row.volatile],
            alike,
        )
        for row in rows
    }


def _selected(names: Manifest, sections: Collection[str] | None) -> Manifest:
    if sections is None:
        return names
    return {
        name: sha for name, sha in names.items() if name.removeprefix(documents.EARLIER) in sections
    }


def _pieces(connection: Connection, manifests: Iterable[Manifest]) -> dict[str, bytes]:
    """The pieces that manifests name, by SHA-256 in hex."""
    b = t.blob.c
    shas = {bytes.fromhex(sha) for names in manifests for sha in names.values()}
    ids = {
        row.id: bytes(row.sha256).hex()
        for row in connection.execute(select(b.id, b.sha256).where(b.sha256.in_(shas)))
    }
    return {ids[number]: piece for number, piece in contents(connection, ids).items()}
