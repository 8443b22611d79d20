"""Changes of which each may be refused by itself: the others are planned, and the refusals told."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nodevet.fixing.gpus import notes
from nodevet.fixing.model import FixError, PlannedChange


def planned(changes: Sequence[PlannedChange], refused: Sequence[str]) -> Iterator[PlannedChange]:
    """The changes, the first with a note of what was refused. Raises FixError if none is."""
    if not changes:
        raise FixError("; ".join(refused))
    left = f"not in the plan: {'; '.join(refused)}" if refused else ""
    for number, each in enumerate(changes):
        yield each if number else replace(each, note=notes(each.note, left))
