"""What was drained or resumed, as a sheet. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import brief, plain
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count, nodeset
from nodevet.slurm.decide import NodePlan

LONGEST = 400


def nodes_sheet(done: Sequence[NodePlan], verb: str, run: str, *, dry: bool) -> Sheet:
    """`verb`: drained or resumed. `dry`: nothing was done."""
    number = sum(not plan.why_not for plan in done)
    left = len(done) - number
    would = "would be " if dry else ""
    parts = [f"{count(number, 'node')} {would}{verb}", f"{left:,} left" if left else ""]
    return Sheet(
        title=" · ".join(filter(None, [*parts, f"run {plain(run)}"])),
        kind="slurm",
        blocks=(TableBlock(rows=tuple(_rows(done, verb))),) if done else (),
    )


def _rows(done: Sequence[NodePlan], verb: str) -> Iterator[tuple[Cell, ...]]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for plan in done:
        word, tone = (
            ("left", "unknown" if plan.is_short else "quiet") if plan.why_not else (verb, "ok")
        )
        groups.setdefault((word, tone, plan.why_not or plan.reason), []).append(plan.node)
    for (word, tone, text), names in groups.items():
        yield Cell(word, tone), Cell(nodeset(names)), Cell(brief(text, LONGEST))
