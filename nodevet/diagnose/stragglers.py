"""Which GPU of a group with the same work is slower than the others, and how it differs (pure).

In a job that synchronizes, all wait for the slowest: its GPU is busier, its clocks are lower or its
input comes later, while the others wait for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from nodevet.diagnose.job_ranks import STATES
from nodevet.diagnose.late_ranks import late_ranks
from nodevet.diagnose.model import (
    Cause,
    Figure,
    GpuDiagnosis,
    HostDiagnosis,
    Rank,
    RankState,
    Straggler,
    Suspect,
)
from nodevet.diagnose.slow_clock import slow_clocks
from nodevet.diagnose.words import SLOWDOWN, number, slowdown

LEAST = 3  # GPUs with the same command: two of them may be two servers
BY_COMMAND = "nothing but the command says that they are ranks of one job"
COMPARED = {"clock": 5.0, "sm_busy": 20.0, "slowed": 10.0, "link": 30.0}
"""Figures by which a GPU may differ from the median of the others, and by how much at least."""

Member = tuple[HostDiagnosis, GpuDiagnosis]
RankKey = tuple[str | None, ...]


def stragglers(hosts: Iterable[HostDiagnosis]) -> tuple[Straggler, ...]:
    """The GPUs that differ from the others of the same job and model, each with its differences."""
    groups: dict[RankKey, list[Member]] = {}
    for host in hosts:
        for gpu in host.gpus:
            if gpu.group and (gpu.cause not in (Cause.IDLE, Cause.REQUESTS) or gpu.group_is_job):
                groups.setdefault(_key(host, gpu), []).append((host, gpu))
    return tuple(straggler for members in groups.values() for straggler in _odd_ones(members))


def _key(host: HostDiagnosis, gpu: GpuDiagnosis) -> RankKey:
    return gpu.name, gpu.group, host.host if gpu.group_on_host else None


def _odd_ones(members: Sequence[Member]) -> Iterator[Straggler]:
    is_job = members[0][1].group_is_job
    if len(members) < (2 if is_job else LEAST) or _are_several_jobs(members):
        return
    ranks = [_rank(host, gpu) for host, gpu in members]
    late = frozenset(late_ranks(ranks)) or _slow(ranks, members)
    for rank, (host, gpu) in zip(ranks, members, strict=True):
        if rank not in late:
            continue
        others = [member for member in members if member[1] is not gpu]
        shared = _common([other.cause for _, other in others])
        are = "the others are" if len(others) > 1 else "the other is"
        cause = f"{gpu.cause.value}, {are} {shared.value}" if shared else gpu.cause.value
        differences = _differences(gpu, [other for _, other in others])
        yield Straggler(
            host=host.host,
            gpu=gpu.index,
            sentence="; ".join([cause, *differences, *([] if is_job else [BY_COMMAND])]),
            suspects=tuple(_own_settings(host, gpu, others)),
        )


def _are_several_jobs(members: Sequence[Member]) -> bool:
    """Whether different processes say that they are the same rank."""
    claims = {
        (gpu.group_rank, host.host, tuple(job.pid for job in gpu.jobs))
        for host, gpu in members
        if gpu.group_rank is not None
    }
    return len(claims) > len({number for number, *_ in claims})


def _rank(host: HostDiagnosis, gpu: GpuDiagnosis) -> Rank:
    return Rank(
        host=host.host,
        gpus=(gpu.index,),
        state=STATES.get(gpu.cause, RankState.QUIET),
        cause=gpu.cause,
        causes=gpu.causes,
        text=gpu.claim,
    )


def _slow(ranks: Sequence[Rank], members: Sequence[Member]) -> frozenset[Rank]:
    """Those whose clocks are lower than all others', if all have the same cause."""
    gpus = [gpu for _, gpu in members]
    is_same = len({gpu.cause for gpu in gpus}) == 1
    return frozenset(ranks[place] for place in slow_clocks(gpus)) if is_same else frozenset()


def _common(causes: Sequence[Cause]) -> Cause | None:
    """The cause of more than half of them."""
    return next((cause for cause in set(causes) if causes.count(cause) * 2 > len(causes)), None)


def _figures(gpu: GpuDiagnosis) -> Mapping[str, Figure]:
    return {figure.name: figure for figure in gpu.figures}


def _differences(gpu: GpuDiagnosis, others: Sequence[GpuDiagnosis]) -> Iterator[str]:
    mine = _figures(gpu)
    for name, least in COMPARED.items():
        figure = mine.get(name)
        values = [
            figure_of_other.value
            for other in others
            if (figure_of_other := _figures(other).get(name)) is not None
            and figure_of_other.value is not None
        ]
        if figure is None or figure.value is None or not values:
            continue
        usual = median(values)
        if abs(figure.value - usual) >= least:
            what = figure.what.replace(SLOWDOWN, slowdown(figure))
            yield f"{what} {number(figure.value)} %, the others {number(usual)} %"


def _own_settings(
    host: HostDiagnosis, gpu: GpuDiagnosis, others: Sequence[Member]
) -> Iterator[str]:
    """The settings that differ from the baseline here, and on most of the others do not."""
    theirs = [_wrong(other, other_gpu.index) for other, other_gpu in others]
    for suspect in host.suspects:
        if suspect.gpu not in (None, gpu.index):
            continue
        having = sum(suspect.finding.check in checks for checks in theirs)
        if having * 2 < len(theirs):
            yield suspect_text(suspect)


def _wrong(host: HostDiagnosis, index: int) -> set[str]:
    return {suspect.finding.check for suspect in host.suspects if suspect.gpu in (None, index)}


def suspect_text(suspect: Suspect) -> str:
    """A setting that differs: `power_limit is 500 W, expected 700 W: nodevet plan --fix …`."""
    finding = suspect.finding
    subject = "" if finding.subject.kind == "node" else f" of {finding.subject.label}"
    line = f"{finding.check}{subject} is {finding.text(finding.actual)}"
    if finding.expected is not None:
        line += f", expected {finding.text(finding.expected)}"
    return f"{line}: `nodevet plan --fix {finding.check}`" if suspect.fixable else line
