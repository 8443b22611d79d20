"""The evidence of visits, joined again: all of it, or some sections."""

from collections.abc import Collection, Iterable, Mapping

import msgspec
from sqlalchemy import Connection, select

from nodevet.base import typed
from nodevet.base.last_few import LastFew
from nodevet.evidence.document import Evidence, open_evidence
from nodevet.store import documents
from nodevet.store import schema as t
from nodevet.store.blobs import contents
from nodevet.store.documents import OpenSplit

Manifest = Mapping[str, str]  # section -> SHA-256 of its steady values


class KeptEvidence(msgspec.Struct, frozen=True):
    """The evidence of one visit, or some of its sections, as the store keeps it."""

    names: Manifest  # of all sections, in order; empty: `volatile` is the whole evidence
    steady: Mapping[str, bytes]  # the steady values of the sections that were asked for
    volatile: bytes

    def document(self, alike: LastFew | None = None) -> bytes:
        """See nodevet.store.documents.join_document."""
        if not self.names:
            return self.volatile
        return documents.join_document(self.names, self.steady, self.volatile, alike)

    def split(self, alike: LastFew) -> OpenSplit | None:
        """See nodevet.store.documents.open_split."""
        return documents.open_split(self.steady, self.volatile, alike) if self.names else None

    def open_evidence(self, alike: LastFew | None) -> Evidence:
        """The evidence; without `alike`, from its whole document. Raises EvidenceError."""
        split = self.split(alike) if alike else None
        return split.evidence if split else open_evidence(self.document(alike), alike=alike)

    def hashes(self, sections: Iterable[str]) -> tuple[str | None, ...]:
        """The hash of the steady values of each section; None if it has none."""
        return tuple(map(self.names.get, sections))


def of_visits(
    connection: Connection, visits: Collection[int], sections: Collection[str] | None = None
) -> dict[int, KeptEvidence]:
    """The evidence of visits by their ids, without visits whose evidence was pruned."""
    v = t.visit.c
    rows = connection.execute(
        select(v.id, v.steady, v.volatile).where(v.id.in_(visits), v.volatile.is_not(None))
    ).all()
    steady = {row.steady for row in rows if row.steady is not None}
    blobs = contents(connection, steady | {row.volatile for row in rows})
    manifests: dict[int | None, Manifest] = {None: {}}
    manifests |= {blob: typed.decode(blobs[blob], dict[str, str]) for blob in steady}
    selected = {blob: _selected(names, sections) for blob, names in manifests.items()}
    pieces = _pieces(connection, selected.values())
    parts = {
        blob: {name: pieces[sha] for name, sha in names.items()} for blob, names in selected.items()
    }
    return {
        row.id: KeptEvidence(manifests[row.steady], parts[row.steady], blobs[row.volatile])
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
