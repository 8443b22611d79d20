"""A run of fixes as a matrix of hosts and fixes, with everything that was done. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.base.ranges import in_ranges
from nodevet.fix import result_text
from nodevet.fixing.result import HostResult, Outcome, Result, StepResult
from nodevet.sheet.model import (
    AnyBlock,
    FactBlock,
    GroupBlock,
    MatrixBlock,
    MatrixColumn,
    MatrixEntry,
    MatrixRow,
    RowEntry,
)
from nodevet.sheet.text import name

StepGroup = Callable[[HostResult, StepResult], GroupBlock]
"""(host, step) -> everything that the report shows of the step."""
LEGEND = (
    ("fail", "rollback failed"),
    ("warning", "failed, refused or not attempted"),
    ("unknown", "unknown"),
    ("quiet", "unchanged"),
    ("ok", "as planned"),
)


class _Step(NamedTuple):
    """What the same step on several hosts shares."""

    fix: str
    outcome: Outcome
    subjects: tuple[str, ...]
    change: str
    blocks: tuple[AnyBlock, ...]


def matrix(result: Result, step_group: StepGroup, tone: Callable[[Outcome], str]) -> MatrixBlock:
    """Every host with every step, the worst hosts first."""
    entries: dict[_Step, int] = {}
    rows = []
    for host in sorted(result.hosts, key=lambda host: host.outcome.rank):
        steps = [_step(host, step, step_group) for step in host.steps]
        numbers = [entries.setdefault(step, len(entries)) for step in steps]
        rows.append(_row(host, numbers, tone(host.outcome)))
    fixes = list(dict.fromkeys(step.fix for step in entries))
    return MatrixBlock(
        title="Hosts and fixes",
        heads=("Fix", "Outcome", "Worst step"),
        columns=tuple(MatrixColumn(plain(fix)) for fix in fixes),
        entries=tuple(_entry(step, fixes.index(step.fix), tone) for step in entries),
        rows=tuple(rows),
        outcomes=tuple(
            (outcome.words, tone(outcome), number)
            for outcome, number in result_text.tally(result).items()
            if number
        ),
        legend=LEGEND,
    )


def _step(host: HostResult, step: StepResult, step_group: StepGroup) -> _Step:
    blocks = step_group(host, step).blocks
    return _Step(step.fix, step.outcome, step.subjects, result_text.change(step), blocks)


def _entry(step: _Step, column: int, tone: Callable[[Outcome], str]) -> MatrixEntry:
    return MatrixEntry(
        column=column,
        word=step.outcome.words,
        tone=tone(step.outcome),
        rank=len(Outcome) - step.outcome.rank,
        label=plain(in_ranges(filter(None, step.subjects))),
        text=step.change,
        blocks=(FactBlock(rows=(("change", step.change),)), *step.blocks),
    )


def _row(host: HostResult, entries: list[int], tone: str) -> MatrixRow:
    marks = [word for word, on in (("canary", host.canary), ("rebooted", host.rebooted)) if on]
    why = brief(host.why, result_text.LONGEST)
    facts = {"why": why, "took": elapsed(host.seconds), "also": ", ".join(marks)}
    return MatrixRow(
        name=name(host.host),
        word=host.outcome.words,
        tone=tone,
        why=why,
        facts=tuple((label, text) for label, text in facts.items() if text),
        entries=tuple(RowEntry(entry=entry) for entry in entries),
    )
