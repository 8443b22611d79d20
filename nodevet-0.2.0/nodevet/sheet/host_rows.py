"""Lay out rows about hosts for a terminal of some width or for a pipe. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import ELLIPSIS, cells, cut
from nodevet.sheet.model import HostRow
from nodevet.sheet.text import GAP, NARROWEST, column, count, nodeset, pad, wrap

INDENT = "      "


def table(rows: Sequence[HostRow], width: int | None = None, margin: str = "") -> Iterator[str]:
    """Rows with aligned columns. If a row is too wide, its note moves below it and its hosts are
    cut: the reason counts for more than the last of many hosts."""
    widths = [column(texts) for texts in zip(*(row.cells for row in rows), strict=True)]
    wheres = [" ".join(filter(None, (nodeset(row.hosts), row.subjects))) for row in rows]
    widest = column(wheres)
    for row, where in zip(rows, wheres, strict=True):
        padded = [pad(cell, size) for cell, size in zip(row.cells, widths, strict=True) if size]
        lead = margin + GAP.join(padded)
        line = GAP.join([lead, pad(where, widest), row.note]).rstrip()
        if width is not None and cells(line) > width:
            line = GAP.join(filter(None, (lead.rstrip(), where, row.note)))
        if width is None or cells(line) <= width:
            yield line
            continue
        short = [*wrap(lead, width)] if cells(lead) + NARROWEST > width else [lead.rstrip()]
        yield from short[:-1]
        room = width - cells(short[-1]) - len(GAP)
        yield f"{short[-1]}{GAP}{fit_hosts(row.hosts, row.subjects, room)}"
        yield from (
            INDENT + part for part in wrap(row.note, max(NARROWEST, width - len(INDENT))) if part
        )


def fit_hosts(hosts: Sequence[str], subjects: str, room: int) -> str:
    """Hosts and subjects in `room` columns; if need be only the first hosts, and their number."""
    tail = f" {subjects}" if subjects else ""
    where = nodeset(hosts)
    if cells(where + tail) <= max(NARROWEST, room):
        return where + tail
    tail = f" ({count(len(set(hosts)), 'host')}){tail}"
    room = max(NARROWEST, room) - cells(tail)
    return cut(where, max(NARROWEST // 2, room)).removesuffix(ELLIPSIS) + ELLIPSIS + tail
