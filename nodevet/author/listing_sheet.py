"""What there is of one kind, as a sheet. Pure."""

from collections.abc import Mapping, Sequence

from nodevet.base.printable import plain
from nodevet.sheet.model import Cell, Medium, Sheet, TableBlock
from nodevet.sheet.text import count

Left = Mapping[str, Mapping[str, str]]
"""Of each baseline the checks that it does not ask for, and why."""


def listing_sheet(kind: str, rows: Sequence[Mapping[str, str]], left: Left) -> Sheet:
    """A row for each thing, which explains itself in a terminal; then the checks that not all
    baselines ask for."""
    cells = tuple(tuple(Cell(plain(text)) for text in row.values()) for row in rows)
    heads = tuple(next(iter(rows), ()))
    unasked = _unasked(left)
    return Sheet(
        title=f"{len(rows):,} {kind if len(rows) != 1 else kind.removesuffix('s')}",
        kind="list",
        media=Medium.DOCUMENT,
        blocks=(
            TableBlock(rows=cells, media=Medium.TERMINAL),
            TableBlock(rows=cells, heads=heads, media=Medium.DOCUMENT),
            *([unasked] if unasked.rows else []),
        ),
    )


def _unasked(left: Left) -> TableBlock:
    """The checks that not all of the baselines ask for: how many do, and why the others do not."""
    whys = {check: why for checks in left.values() for check, why in checks.items()}
    rows = []
    for check, why in sorted(whys.items()):
        asking = sum(check not in checks for checks in left.values())
        rows.append((Cell(check), Cell(f"asked by {asking}" if asking else ""), Cell(plain(why))))
    return TableBlock(
        title=f"{count(len(rows), 'check')} that not all of them ask for", rows=tuple(rows)
    )
