"""The ranks of a job in a sheet: those that are alike in one row, and their time line. Pure."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.base.printable import brief
from nodevet.diagnose.axis import Axis
from nodevet.diagnose.board import CELLS, sparkline
from nodevet.diagnose.late_ranks import label
from nodevet.diagnose.model import POLLS, Diagnosis, JobDiagnosis, Points, Rank, RankState
from nodevet.diagnose.phrases import folded, steps
from nodevet.evidence.lists import spans
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    FactBlock,
    GroupBlock,
    Medium,
    TableBlock,
    TextBlock,
    TimeBlock,
    TimeLine,
    TimeStrip,
)
from nodevet.sheet.text import nodeset

LONGEST = 2000  # columns of one text
LINES = 8  # of ranks in one chart
MOMENTS = 60  # of a chart
HEADS = ("ranks", "on", "what it does", "SM busy over time")
Course = dict[tuple[str, int], Points]


def job_blocks(incident: Diagnosis, job: JobDiagnosis, axis: Axis) -> Iterator[AnyBlock]:
    """What the ranks wait for, how certain that is, and a row for those that do the same."""
    yield TextBlock(text=brief(job.claim or job.sentence, LONGEST))
    rows = [
        *(("why", brief(text, LONGEST)) for text in job.reasons),
        ("confidence", job.confidence.value),
        *(("but", brief(text, LONGEST)) for text in job.doubts),
        *(("also", brief(text, LONGEST)) for text in job.notes),
        *(("next", brief(text, LONGEST)) for text in steps(job.next_step)),
    ]
    yield FactBlock(rows=tuple(folded(rows)))
    course = _course(incident, axis)
    groups = alike(job)
    yield TableBlock(heads=HEADS, rows=tuple(_row(group, course, axis) for group in groups))
    lines = [
        TimeLine(name=_numbers(group.ranks), unit="%", points=points, most=100.0)
        for group in groups
        if (points := _mean_points(group.ranks, course, axis))
    ]
    if lines:
        strip = TimeStrip(title="SM busy", unit="%", lines=tuple(lines[:LINES]))
        block = TimeBlock(strips=(strip,), seconds=axis[1])
        yield GroupBlock(title="Ranks over time", media=Medium.PAGE, blocks=(block,))


def of_late_ranks(
    hosts: Sequence[GroupBlock], incident: Diagnosis, job: JobDiagnosis
) -> list[GroupBlock]:
    """The hosts; a terminal shows only those of late ranks, if there are any."""
    late = {rank.host for rank in job.late_ranks}
    return [
        replace(group, media=Medium.DOCUMENT) if late and host.host not in late else group
        for group, host in zip(hosts, incident.hosts, strict=True)
    ]


class AlikeRanks(NamedTuple):
    """Ranks that are alike."""

    word: str  # what they do
    is_late: bool
    ranks: list[Rank]


def alike(job: JobDiagnosis) -> list[AlikeRanks]:
    """The late ranks first, by host; then the others by what they do."""
    late = frozenset(job.late)
    waits = brief(f"waits for {label(job.late_ranks)}", LONGEST) if late else ""
    groups: dict[object, AlikeRanks] = {}
    for place, rank in sorted(enumerate(job.ranks), key=lambda placed: placed[0] not in late):
        is_late = place in late
        word = _word(rank, "" if is_late else waits)
        key = (is_late, rank.host if is_late else "", rank.state, word)
        groups.setdefault(key, AlikeRanks(word, is_late, [])).ranks.append(rank)
    return list(groups.values())


def _row(group: AlikeRanks, course: Course, axis: Axis) -> tuple[Cell, ...]:
    is_unseen = group.ranks[0].state is RankState.UNSEEN
    tone = "fail" if group.is_late else "unknown" if is_unseen else ""
    bars = sparkline(_mean_points(group.ranks, course, axis), CELLS, (0.0, axis[1]))
    hosts = brief(nodeset({rank.host for rank in group.ranks if rank.host}), LONGEST)
    return Cell(_numbers(group.ranks)), Cell(hosts), Cell(group.word, tone), Cell(bars)


def _word(rank: Rank, waits: str) -> str:
    """`waits`: what it says of a rank that waits for the late ones."""
    if waits and rank.state in POLLS:
        return waits
    own = rank.state in (RankState.HELD_UP, RankState.COMPUTES, *POLLS) and rank.cause
    return rank.cause.value if own and rank.cause else rank.state.value


def _numbers(group: Sequence[Rank]) -> str:
    numbers = [rank.number for rank in group if rank.number is not None]
    unknown = len(group) - len(numbers)
    return ", ".join(filter(None, (spans(numbers), f"{unknown} without a number" * bool(unknown))))


def _course(incident: Diagnosis, axis: Axis) -> Course:
    """How busy each GPU was; the seconds count from the first look on any host."""
    return {
        (host.host, line.gpu): tuple((at + axis.later(host), value) for at, value in line.points)
        for host in incident.hosts
        for line in host.timelines
        if line.name == "SM busy" and line.gpu is not None
    }


def _mean_points(group: Sequence[Rank], course: Course, axis: Axis) -> Points:
    """The mean of all GPUs of these ranks, at MOMENTS points in time."""
    binned: dict[int, list[float]] = {}
    for place in {(rank.host, gpu) for rank in group for gpu in rank.gpus}:
        for at, value in course.get(place, ()):
            binned.setdefault(int(at / axis[1] * MOMENTS), []).append(value)
    return tuple((n * axis[1] / MOMENTS, mean(binned[n])) for n in sorted(binned))
