"""How dumps of PyTorch's flight recorder confirm or contradict the watch of a job (pure).

A dump is older than the watch, and text of the job's user. So it names a late rank only if all
ranks wait and the watch names none, and never with high confidence. Otherwise it agrees or
contradicts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.diagnose.collectives import OLD_S, DumpedRanks, dumped_ranks
from nodevet.diagnose.job_ranks import HostRanks
from nodevet.diagnose.model import Rank, RankState
from nodevet.diagnose.words import ranks_text

WAIT = (RankState.WAITS, RankState.QUIET, RankState.NO_GPU, RankState.UNSEEN)
NEXT = (
    "py-spy dump --nonblocking --pid {} shows where it is instead: in a branch that only some "
    "ranks take, in its input, or behind an exception that was caught"
)
MISMATCH_STEP = (
    "each rank must call the same collectives in the same order: torchfrtrace reads the same "
    "dumps, and shows the lines of the program"
)


class WithDumps(NamedTuple):
    """The ranks, and what the dumps add."""

    ranks: list[Rank]
    late: list[Rank]
    mismatch: str = ""
    doubts: tuple[str, ...] = ()  # confidence is low
    contradiction: str = ""  # confidence is not high
    notes: tuple[str, ...] = ()


def with_dumps(
    ranks: Sequence[Rank], late: Sequence[Rank], shown: Mapping[str, HostRanks], size: int | None
) -> WithDumps:
    """`late`: those that the watch alone names; `shown`: what each host shows of the job."""
    dumped = dumped_ranks([dump for host in shown.values() for dump in host.dumps.values()], size)
    numbers = {
        (host, pid): dump.rank
        for host, host_ranks in shown.items()
        for pid, dump in host_ranks.dumps.items()
    }
    plain = WithDumps(list(ranks), list(late), notes=dumped.notes)
    seen = [rank for rank in late if rank.state is not RankState.UNSEEN]
    if not seen and all(rank.state in WAIT for rank in ranks):
        return _named(plain, dumped, numbers)
    text = _contradiction(seen, dumped, numbers)
    if text and dumped.age_s > OLD_S:
        old = f"nodevet ignores dumps of the flight recorder that are {elapsed(dumped.age_s)} old"
        return plain._replace(notes=(*dumped.notes, old))
    if text:
        return plain._replace(contradiction=text)
    return plain._replace(notes=(*dumped.notes, *_agreement(dumped)))


def _named(
    plain: WithDumps, dumped: DumpedRanks, numbers: Mapping[tuple[str, int], int]
) -> WithDumps:
    """All ranks wait, so that the dumps can name those that are behind."""
    if dumped.mismatch:
        return plain._replace(late=[], mismatch=dumped.mismatch, doubts=dumped.doubts)
    if not dumped.behind:
        return plain._replace(notes=(*dumped.notes, *_agreement(dumped)))
    ranks = [_behind(rank, dumped, numbers) for rank in plain.ranks]
    late = [rank for rank in ranks if rank.state is RankState.BEHIND]
    return plain._replace(ranks=ranks, late=late, doubts=dumped.doubts)


def _behind(rank: Rank, dumped: DumpedRanks, numbers: Mapping[tuple[str, int], int]) -> Rank:
    number = numbers.get((rank.host, rank.pid or 0), -1)
    if number not in dumped.behind:
        return rank
    return replace(
        rank,
        state=RankState.BEHIND,
        cause=None,
        text=f"by the dumps of the flight recorder it {dumped.behind[number]}",
        next_step=NEXT.format(rank.pid),
    )


def _contradiction(
    late: Iterable[Rank], dumped: DumpedRanks, numbers: Mapping[tuple[str, int], int]
) -> str:
    """How the dumps contradict what was seen; empty if they do not."""
    seen = {numbers.get((rank.host, rank.pid or 0), -1) for rank in late}
    start = "the dumps of the flight recorder contradict this"
    if dumped.mismatch:
        return f"{start}: {dumped.mismatch}"
    if dumped.behind and set(dumped.behind) != seen:
        return f"{start}: {all_behind(dumped.behind)}"
    if waits := seen & dumped.waiting:
        return f"{start}: they say that {ranks_text(waits)} waited in a collective like others"
    return ""


def _agreement(dumped: DumpedRanks) -> list[str]:
    if dumped.behind:
        return [f"the dumps of the flight recorder agree: {all_behind(dumped.behind)}"]
    text = (
        f"by the dumps of the flight recorder, every rank of its group waits in {dumped.together}"
    )
    return [text] if dumped.together else []


def all_behind(behind: Mapping[int, str]) -> str:
    """Of several ranks, the text of the first."""
    first = min(behind)
    more = f"; {ranks_text(set(behind) - {first})} too" if len(behind) > 1 else ""
    return f"rank {first} {behind[first]}{more}"
