"""The ranks of a job in a sheet: those that are alike in one row, and their time line. Pure."""

from collections.abc import Iterator, Sequence
from statistics import mean

from msgspec.structs import replace

from nodevet.base.printable import brief
from nodevet.diagnose.axis import Axis
from nodevet.diagnose.board import CELLS, sparkline
from nodevet.diagnose.late_ranks import POLLS, label
from nodevet.diagnose.model import Diagnosis, JobDiagnosis, Points, Rank, RankState
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
    yield TextBlock(text=brief(job.sentence, LONGEST))
    rows = [
        ("confidence", job.confidence.value),
        *(("but", brief(text, LONGEST)) for text in job.doubts),
        *(("also", brief(text, LONGEST)) for text in job.notes),
        ("next", brief(job.next_step, LONGEST)),
    ]
    yield FactBlock(rows=tuple(rows))
    course = _course(incident, axis)
    groups = alike(job)
    yield TableBlock(heads=HEADS, rows=tuple(_row(job, group, course, axis) for group in groups))
    lines = [
        TimeLine(name=_numbers(group), unit="%", points=points, most=100.0)
        for group in groups
        if (points := _of(group, course, axis))
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


def alike(job: JobDiagnosis) -> list[list[Rank]]:
    """The late ranks first, by host; then the others by what they do."""
    groups: dict[object, list[Rank]] = {}
    for place, rank in sorted(enumerate(job.ranks), key=lambda each: each[0] not in job.late):
        host = rank.host if place in job.late else ""
        groups.setdefault((place in job.late, host, rank.state, _word(job, rank)), []).append(rank)
    return list(groups.values())


def _row(job: JobDiagnosis, group: Sequence[Rank], course: Course, axis: Axis) -> tuple[Cell, ...]:
    is_late = group[0] in job.late_ranks
    tone = "fail" if is_late else "unknown" if group[0].state is RankState.UNSEEN else ""
    bars = sparkline(_of(group, course, axis), CELLS, (0.0, axis[1]))
    hosts = brief(nodeset({rank.host for rank in group if rank.host}), LONGEST)
    return Cell(_numbers(group)), Cell(hosts), Cell(_word(job, group[0]), tone), Cell(bars)


def _word(job: JobDiagnosis, rank: Rank) -> str:
    late = job.late_ranks
    if late and rank not in late and rank.state in POLLS:
        return brief(f"waits for {label(late)}", LONGEST)
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


def _of(group: Sequence[Rank], course: Course, axis: Axis) -> Points:
    """The mean of all GPUs of these ranks, at MOMENTS points in time."""
    binned: dict[int, list[float]] = {}
    for place in {(rank.host, gpu) for rank in group for gpu in rank.gpus}:
        for at, value in course.get(place, ()):
            binned.setdefault(int(at / axis[1] * MOMENTS), []).append(value)
    return tuple((n * axis[1] / MOMENTS, mean(binned[n])) for n in sorted(binned))
