"""Why a rank is late whose CPUs others take, if the ranks that wait may use the same CPUs (pure).

Others then take CPUs from all of these ranks alike. So what makes one of them late is a cause that
only this one has; without any, it is not known why this one is late.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodevet.diagnose.job_ranks import HostRanks
from nodevet.diagnose.model import Cause, Confidence, GpuDiagnosis, HostDiagnosis, Rank, RankState
from nodevet.diagnose.steps import next_step
from nodevet.diagnose.words import numbers_of

WAIT = (RankState.WAITS, RankState.QUIET)
NOT_CLEAR = "others take CPUs from the waiting ranks too, so it is not clear why only {} is late"
Gpus = Mapping[tuple[str, int], GpuDiagnosis]


def with_own_causes(
    ranks: Sequence[Rank],
    late: Sequence[Rank],
    hosts: Iterable[HostDiagnosis],
    shown: Mapping[str, HostRanks],
) -> tuple[list[Rank], list[Rank], list[str]]:
    """The ranks, the late ranks, and the doubts about them."""
    starved = [rank for rank in late if rank.cause is Cause.STARVED]
    if not starved:
        return list(ranks), list(late), []
    gpus = {(host.host, gpu.index): gpu for host in hosts for gpu in host.gpus}
    new: dict[Rank, Rank] = {}
    doubts = []
    by_host: dict[str, list[Rank]] = {}
    for rank in ranks:
        by_host.setdefault(rank.host, []).append(rank)
    for rank in starved:
        peers = [other for other in by_host[rank.host] if _shares(other, rank, shown)]
        causes = _own_causes(rank, peers, gpus) if peers else ()
        if causes:
            new[rank] = _mixed_rank(rank, causes, _gpu(rank, gpus))
        elif peers:
            name = "this one" if rank.number is None else f"rank {rank.number}"
            doubts.append(NOT_CLEAR.format(name))
    return [new.get(rank, rank) for rank in ranks], [new.get(rank, rank) for rank in late], doubts


def _shares(other: Rank, rank: Rank, shown: Mapping[str, HostRanks]) -> bool:
    """Whether another rank waits, and may use the same CPUs."""
    cpus = shown[rank.host].cpus
    mine, theirs = cpus.get(rank.pid or 0), cpus.get(other.pid or 0)
    return other.state in WAIT and mine is not None and mine == theirs


def _own_causes(rank: Rank, peers: Iterable[Rank], gpus: Gpus) -> tuple[Cause, ...]:
    """The causes of a rank that none of its peers has, whatever explains them."""
    theirs = {cause for peer in peers for cause in _holding(_gpu(peer, gpus))}
    mine = _holding(_gpu(rank, gpus))
    return tuple(cause for cause in mine if cause not in theirs and cause is not Cause.STARVED)


def _gpu(rank: Rank, gpus: Gpus) -> GpuDiagnosis:
    """The GPU that gives a rank its cause."""
    own = [gpus[rank.host, index] for index in rank.gpus if (rank.host, index) in gpus]
    return next((gpu for gpu in own if gpu.cause is rank.cause), own[0])


def _holding(gpu: GpuDiagnosis) -> list[Cause]:
    return list(dict.fromkeys(ruling.cause for ruling in gpu.rulings if ruling.holds))


def _mixed_rank(rank: Rank, own: tuple[Cause, ...], gpu: GpuDiagnosis) -> Rank:
    figures = {figure.name: figure for figure in gpu.figures}
    causes = (*own, Cause.STARVED)
    texts = "; ".join(f"{cause.value}: {', '.join(numbers_of(cause, figures))}" for cause in own)
    return replace(
        rank,
        cause=Cause.MIXED,
        causes=causes,
        confidence=Confidence.LOW if gpu.confidence is Confidence.LOW else Confidence.MEDIUM,
        text=f"waits for more than one thing: {texts}; {Cause.STARVED.value}: {gpu.sentence}",
        next_step=next_step(causes, gpu.rulings, figures, ""),
    )
