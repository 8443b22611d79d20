"""Which GPU of a group with the same work is slower than the others, and how it differs (pure).

In a job that synchronizes, all wait for the slowest: its GPU is busier, its clocks are lower or its
input comes later, while the others wait for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from nodevet.diagnose.model import Cause, Figure, GpuDiagnosis, HostDiagnosis, Straggler, Suspect
from nodevet.diagnose.words import number

LEAST = 3  # GPUs with the same command: two of them may be two servers
OWN = (
    *(Cause.LOST, Cause.THROTTLED, Cause.SUBMISSION, Cause.PREPROCESSING, Cause.STORAGE),
    *(Cause.TRANSFER, Cause.MEMORY, Cause.NUMA, Cause.MIXED, Cause.STUCK),
)
"""A rank with one of these causes is late by itself."""
WAITING = (Cause.GPU, Cause.SPINNING)
"""A rank that waits for the late one may have one of these."""
COMPARED = {"clock": 10.0, "sm_busy": 20.0, "slowed": 10.0, "link": 30.0}
"""Figures by which a GPU may differ from the median of the others, and by how much at least."""

Member = tuple[HostDiagnosis, GpuDiagnosis]
RankKey = tuple[str | None, ...]


def stragglers(hosts: Iterable[HostDiagnosis]) -> tuple[Straggler, ...]:
    """The GPUs that differ from the others of the same job and model, each with its differences."""
    groups: dict[RankKey, list[Member]] = {}
    for host in hosts:
        for gpu in host.gpus:
            if gpu.cause not in (Cause.IDLE, Cause.REQUESTS) or gpu.group_is_job:
                groups.setdefault(_key(host, gpu), []).append((host, gpu))
    return tuple(straggler for members in groups.values() for straggler in _odd_ones(members))


def _key(host: HostDiagnosis, gpu: GpuDiagnosis) -> RankKey:
    return gpu.name, gpu.group, host.host if gpu.group_on_host else None


def _odd_ones(members: Sequence[Member]) -> Iterator[Straggler]:
    if len(members) < (2 if members[0][1].group_is_job else LEAST):
        return
    causes = [gpu.cause for _, gpu in members]
    for host, gpu in members:
        others = [member for member in members if member[1] is not gpu]
        differences = list(_differences(gpu, [other for _, other in others]))
        shared = _common([other.cause for _, other in others])
        alone = _is_late(gpu.cause, causes)
        slower = gpu.cause is shared and _is_slowest(gpu, [other for _, other in others])
        if not alone and not slower:
            continue
        are = "the others are" if len(others) > 1 else "the other is"
        cause = f"{gpu.cause.value}, {are} {shared.value}" if shared else gpu.cause.value
        yield Straggler(
            host=host.host,
            gpu=gpu.index,
            sentence="; ".join([cause, *differences]),
            suspects=tuple(_own(host, gpu, others)),
        )


def _is_late(cause: Cause, causes: Sequence[Cause]) -> bool:
    """Whether the others may wait for a rank with this cause: it differs from most of them, or,
    without a majority, it is late by itself and another one is not."""
    shared = _common(causes)
    if shared:
        return cause is not shared and not (cause in WAITING and shared in OWN)
    if set(causes) <= {Cause.GPU, Cause.SPINNING}:
        return cause is Cause.GPU
    return cause in OWN and not set(causes) <= set(OWN)


def _is_slowest(gpu: GpuDiagnosis, others: Sequence[GpuDiagnosis]) -> bool:
    """Whether its clock is clearly lower than the clock of every other GPU."""
    clocks = [_figures(compared)["clock"].value for compared in (gpu, *others)]
    mine, *theirs = clocks
    if mine is None or None in theirs:
        return False
    return mine <= min(value for value in theirs if value is not None) - COMPARED["clock"]


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
            yield f"{figure.what} {number(figure.value)} %, the others {number(usual)} %"


def _own(host: HostDiagnosis, gpu: GpuDiagnosis, others: Sequence[Member]) -> Iterator[str]:
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
