"""GPUs whose clocks are clearly lower than those of the others with the same work (pure)."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodevet.diagnose.doubts import POWER_CAPPED
from nodevet.diagnose.model import (
    Cause,
    Confidence,
    Figure,
    GpuDiagnosis,
    HostDiagnosis,
    Rank,
    RankState,
)
from nodevet.diagnose.words import number

LOWER = 0.92  # of the clock of all others: GPUs of one model differ by less at one power limit
NEXT = (
    "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER -i BUS_ID shows what holds its clock; compare its "
    "temperature, power limit and clocks with another rank's GPU"
)


def figure_of(gpu: GpuDiagnosis, name: str) -> Figure | None:
    return next((figure for figure in gpu.figures if figure.name == name), None)


def clock_of(gpu: GpuDiagnosis) -> float | None:
    """The SM clock, in percent of its maximum."""
    figure = figure_of(gpu, "clock")
    return figure.value if figure else None


def slow_clocks(gpus: Sequence[GpuDiagnosis]) -> dict[int, float]:
    """The place of each GPU with a clock of at most LOWER, at most half of them -> the lowest clock
    of the others. None if a clock is not known, or the models differ."""
    clocks = [clock for gpu in gpus if (clock := clock_of(gpu)) is not None]
    if len(clocks) < len(gpus) or len({gpu.name for gpu in gpus}) > 1:
        return {}
    order = sorted(range(len(gpus)), key=lambda place: clocks[place])
    for few in range(len(gpus) // 2, 0, -1):
        least = clocks[order[few]]
        if clocks[order[few - 1]] <= LOWER * least:
            return dict.fromkeys(order[:few], least)
    return {}


def with_slow_clocks(
    ranks: Sequence[Rank], late: Sequence[Rank], hosts: Iterable[HostDiagnosis]
) -> tuple[list[Rank], list[Rank]]:
    """The ranks, and the late ones among them. Of ranks that compute, those with slow clocks are
    late, if all ranks compute; if some are late because they compute, it is why."""
    unchanged = list(ranks), list(late)
    if any(rank.state is not RankState.COMPUTES for rank in late or ranks):
        return unchanged
    gpus = {(host.host, gpu.index): gpu for host in hosts for gpu in host.gpus}
    own = [_slowest(rank, gpus) for rank in ranks]
    slow = slow_clocks([gpu for gpu in own if gpu])
    if None in own or not slow:
        return unchanged
    among = frozenset(late)
    new = {
        rank: _slowed(rank, gpu, slow[place])
        for place, (rank, gpu) in enumerate(zip(ranks, own, strict=True))
        if gpu and place in slow and (not late or (rank in among and not _is_capped(gpu)))
    }
    return (
        [new.get(rank, rank) for rank in ranks],
        [new.get(rank, rank) for rank in late] or list(new.values()),
    )


def _is_capped(gpu: GpuDiagnosis) -> bool:
    """Whether its power limit lowers its clock: of a GPU that polls, it does not."""
    figure = figure_of(gpu, "power_capped")
    return figure is None or (figure.value or 0.0) > POWER_CAPPED


def _slowest(rank: Rank, gpus: Mapping[tuple[str, int], GpuDiagnosis]) -> GpuDiagnosis | None:
    """The GPU of a rank with the lowest clock."""
    own = [gpus[rank.host, index] for index in rank.gpus if (rank.host, index) in gpus]
    return min(own, key=lambda gpu: clock_of(gpu) or 0.0, default=None)


def _slowed(rank: Rank, gpu: GpuDiagnosis, others: float) -> Rank:
    clock = f"SM clock {number(clock_of(gpu) or 0.0)} % of its maximum"
    return replace(
        rank,
        state=RankState.HELD_UP,
        cause=Cause.THROTTLED,
        causes=(Cause.THROTTLED,),
        confidence=Confidence.MEDIUM,
        text=f"runs slower than the other GPUs: {clock}, theirs at least {number(others)} %",
        next_step=NEXT.replace("-i BUS_ID", f"-i {gpu.id}"),
    )
