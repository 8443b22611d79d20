"""Parts of hosts as cells and tables; alike parts as one row. Pure."""

import re
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from nodevet.base.printable import brief, plain
from nodevet.base.uuids import GPU_UUID
from nodevet.past.fact_diffs import FactDiff
from nodevet.past.moves import PartMove
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, TableBlock
from nodevet.sheet.text import count, nodeset

LONGEST = 120  # columns of one value
SHORT = 12  # characters: GPU-2b40377d
MOST_PARTS = 48  # rows of parts: two machines with all that is in them
Values = TypeVar("Values", bound=Hashable)
KINDS = {"gpu": "GPU", "nic": "NIC", "nvme": "NVMe drive", "drive": "drive"}
_NUMBER = re.compile(r"(?<![0-9:])([0-9]{1,4})(?![0-9:])")
"""The number of a part, and no bus of a PCI address: that is hexadecimal."""


def short(value: str) -> str:
    """A value on one line. A GPU's UUID is cut to its beginning, which commands accept."""
    if GPU_UUID.fullmatch(value):
        return value[:SHORT]
    return brief(value, LONGEST) or "none"


def at_text(at: str, clock: Clock) -> str:
    """`Nov 8 02:00` within a sentence: without the spaces that align a column."""
    return " ".join(clock.moment_text(at).split())


def fold(rows: Iterable[tuple[str, Values]]) -> list[tuple[str, Values]]:
    """Rows of a name and its values. Names with equal values that differ in one number only are one
    row: `policy[0-31]`, `link 0-17`.

    >>> fold([("CPU 0", "on"), ("CPU 1", "on"), ("CPU 2", "off"), ("eth1/rx-0", "on")])
    [('CPU 0-1', 'on'), ('CPU 2', 'off'), ('eth1/rx-0', 'on')]
    """
    listed = list(rows)
    names = fold_names(listed)
    return [*dict.fromkeys((name, values) for name, (_, values) in zip(names, listed, strict=True))]


def fold_names(rows: Sequence[tuple[str, Hashable]]) -> list[str]:
    """For each row the name of the row that `fold` puts it in."""
    alike: dict[tuple[Hashable, ...], dict[str, list[str]]] = {}
    for name, values in rows:
        pieces = _NUMBER.split(name)
        alike.setdefault((values, *pieces[::2]), {})[name] = pieces
    folded: dict[Hashable, str] = {}
    for (values, *_), members in alike.items():
        for group in _differ_in_one(list(members.values())):
            row = _row_name(group)
            folded |= {("".join(pieces), values): row for pieces in group}
    return [folded[row] for row in rows]


def _differ_in_one(names: Sequence[list[str]]) -> Iterable[list[list[str]]]:
    """Split names in groups that differ in one number: in the last one if several differ."""
    if len(_different(names)) <= 1:
        return [list(names)]
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for pieces in names:
        groups.setdefault((*pieces[:-2], pieces[-1]), []).append(pieces)
    return groups.values()


def _different(names: Sequence[list[str]]) -> list[int]:
    """The places of the pieces that are not the same in all names."""
    return [place for place, texts in enumerate(zip(*names, strict=True)) if len({*texts}) > 1]


def _row_name(names: Sequence[list[str]]) -> str:
    first = names[0]
    if len(names) == 1:
        return "".join(first)
    from ClusterShell.RangeSet import RangeSet  # as long as the rest of a sheet

    (place,) = _different(names)
    before, after = "".join(first[:place]), "".join(first[place + 1 :])
    numbers = str(RangeSet.fromlist([pieces[place] for pieces in names]))
    is_word = before[-1:] in ("", " ") and after[:1] in ("", " ")
    return before + (numbers if is_word else f"[{numbers}]") + after


def parts_table(moves: Sequence[PartMove]) -> TableBlock | None:
    """The first of the parts that moved, came or went; None if there are none."""
    rows = tuple(
        (
            Cell(f"{KINDS[move.kind.value]} {short(move.id)}"),
            Cell(_way(move)),
            Cell(_place(move.host_before, move.slot_before)),
            Cell(_place(move.host_after, move.slot_after)),
        )
        for move in moves[:MOST_PARTS]
    )
    more = len(moves) - len(rows)
    note = f"and {count(more, 'more part')}: `--format json` has all of them" if more else ""
    heads = ("part", "", "from", "to")
    return TableBlock(title="Parts", heads=heads, rows=rows, note=note) if rows else None


def _way(move: PartMove) -> str:
    if move.host_before and move.host_after:
        return "moved"
    return "new" if move.host_after else "gone"


def _place(host: str, slot: str) -> str:
    return f"{plain(host)}, {brief(slot, LONGEST)}" if host else ""


def facts_table(facts: Iterable[FactDiff]) -> TableBlock | None:
    """The facts of hosts that changed; equal changes of several parts are one row."""
    changes = fold((fact.what, (fact.before, fact.after, fact.hosts)) for fact in facts)
    rows = tuple(
        (Cell(plain(what)), Cell(short(before)), Cell(f"→ {short(after)}"), Cell(nodeset(hosts)))
        for what, (before, after, hosts) in changes
    )
    return TableBlock(title="Facts", rows=rows) if rows else None
