"""The data from which a page's script draws a matrix; rows refer to shared items by index. Pure."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from nodevet.sheet.model import DifferenceRow, MatrixBlock, MatrixRow
from nodevet.sheet.text import name


def data(block: MatrixBlock, differences: Sequence[DifferenceRow]) -> dict[str, Any]:
    """Columns, entries and rows, and of each difference the rows that have it, without empty
    fields."""
    facts: dict[tuple[str, str], int] = {}
    sets: dict[tuple[int, ...], int] = {}
    rows = [_row(row, facts, sets) for row in block.rows]
    places = {row.name: place for place, row in enumerate(block.rows)}
    return {
        "columns": [column.name for column in block.columns],
        "entries": [to_builtins(replace(entry, blocks=())) for entry in block.entries],
        "sets": list(sets),
        "facts": list(facts),
        "rows": rows,
        "lines": [
            [places[name(host)] for host in row.hosts if name(host) in places]
            for row in differences
        ],
    }


def _row(
    row: MatrixRow, facts: dict[tuple[str, str], int], sets: dict[tuple[int, ...], int]
) -> dict[str, Any]:
    entries = tuple(entry.entry for entry in row.entries)
    own = (to_builtins(entry) for entry in row.entries)
    return {
        **to_builtins(replace(row, facts=(), entries=())),
        "facts": [facts.setdefault(fact, len(facts)) for fact in row.facts],
        "set": sets.setdefault(entries, len(sets)),
        "own": {place: fields for place, fields in enumerate(own) if len(fields) > 1},
    }


def embedded(value: Any) -> str:
    """JSON that is safe within HTML: ASCII, without `<`, `>` and `&`."""
    text = json.dumps(value, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
