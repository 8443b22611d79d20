"""The written conditions as a sheet. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import brief, plain
from nodevet.k8s.condition import TYPE, WrittenCondition
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count, nodeset

LONGEST = 400
TONES = {"True": "ok", "False": "fail", "Unknown": "unknown"}


def conditions_sheet(done: Sequence[WrittenCondition], *, dry: bool) -> Sheet:
    """The conditions of the nodes. `dry`: nodevet wrote none of them."""
    number = sum(not condition.why_not for condition in done)
    others = len(done) - number
    would = "would be " if dry else ""
    parts = [
        f"{TYPE} {would}written to {count(number, 'node')}",
        f"{others:,} skipped" if others else "",
    ]
    return Sheet(
        title=" · ".join(filter(None, parts)),
        kind="k8s",
        blocks=(TableBlock(rows=tuple(_rows(done))),) if done else (),
    )


def _rows(done: Sequence[WrittenCondition]) -> Iterator[tuple[Cell, ...]]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for condition in done:
        word = "skipped" if condition.why_not else condition.status
        tone = TONES.get(word, "unknown" if condition.is_short else "quiet")
        groups.setdefault((word, tone, condition.why_not or condition.message), []).append(
            condition.node
        )
    for (word, tone, text), names in groups.items():
        yield Cell(plain(word), tone), Cell(nodeset(names)), Cell(brief(text, LONGEST))
