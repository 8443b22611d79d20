"""Break-fix records as a sheet. Pure."""

from collections.abc import Iterator

from nodevet.base.printable import brief
from nodevet.past.breakfix import BreakFix
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count, name

LONGEST = 200  # columns of one text


def break_fix_sheet(found: BreakFix, clock: Clock) -> Sheet:
    """The repair history of each machine, then the identifiers of its parts."""
    tables = (
        TableBlock(
            title="Repair history",
            heads=("machine", "when", "", "what"),
            rows=tuple(_entries(found, clock)),
        ),
        TableBlock(
            title="Parts", heads=("machine", "part", "identifiers"), rows=tuple(_parts(found))
        ),
    )
    return Sheet(
        title=f"Break-fix records of {count(found.machines_checked, 'machine')}",
        kind="breakfix",
        blocks=tuple(table for table in tables if table.rows),
    )


def _entries(found: BreakFix, clock: Clock) -> Iterator[tuple[Cell, ...]]:
    for record in found.records:
        for entry in record.entries:
            yield (
                Cell(name(record.machine_id)),
                Cell(clock.moment_text(entry.updated_at)),
                Cell(entry.status),
                Cell(brief(entry.message, LONGEST)),
            )


def _parts(found: BreakFix) -> Iterator[tuple[Cell, ...]]:
    for machine in found.machines:
        for kind, component in machine.components.items():
            identifiers = brief(", ".join(component.identifiers), LONGEST)
            yield Cell(name(machine.machine_id)), Cell(kind), Cell(identifiers)
