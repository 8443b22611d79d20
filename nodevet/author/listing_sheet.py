"""A list of everything of one kind, as a sheet. Pure."""

from collections.abc import Mapping, Sequence

from nodevet.base.printable import plain
from nodevet.sheet.model import Cell, Medium, Sheet, TableBlock
from nodevet.sheet.text import count

ReasonsByBaseline = Mapping[str, Mapping[str, str]]
"""By baseline, the checks that it does not expect, and why."""


def listing_sheet(
    kind: str, rows: Sequence[Mapping[str, str]], unexpected: ReasonsByBaseline
) -> Sheet:
    """A row for each thing, without heads in a terminal; then the checks that some baselines do not
    expect."""
    cells = tuple(tuple(Cell(plain(text)) for text in row.values()) for row in rows)
    heads = tuple(next(iter(rows), ()))
    table = _unexpected_table(unexpected)
    return Sheet(
        title=f"{len(rows):,} {kind if len(rows) != 1 else kind.removesuffix('s')}",
        kind="list",
        media=Medium.DOCUMENT,
        blocks=(
            TableBlock(rows=cells, media=Medium.TERMINAL),
            TableBlock(rows=cells, heads=heads, media=Medium.DOCUMENT),
            *([table] if table.rows else []),
        ),
    )


def _unexpected_table(unexpected: ReasonsByBaseline) -> TableBlock:
    """The checks that some baselines do not expect: how many do, and why the others do not."""
    reasons = {check: why for checks in unexpected.values() for check, why in checks.items()}
    rows = []
    for check, why in sorted(reasons.items()):
        asking = sum(check not in checks for checks in unexpected.values())
        rows.append((Cell(check), Cell(f"asked by {asking}" if asking else ""), Cell(plain(why))))
    return TableBlock(
        title=f"{count(len(rows), 'check')} that only some of them include", rows=tuple(rows)
    )
