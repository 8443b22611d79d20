"""What NCCL's RAS adds to the watch of a job: how many collectives each rank launched (pure).

NCCL counts launches, not completions, and none of CUDA graphs, sends and receives. So the counts
name a late rank only if nothing else does, and never with high confidence.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.base.printable import plain
from nodevet.diagnose.job_ranks import HostRanks
from nodevet.diagnose.late_dumps import NEXT, WAIT, all_behind
from nodevet.diagnose.model import Rank, RankState
from nodevet.diagnose.words import ranks_text
from nodevet.evidence.nccl_ras import MissingRank, NcclRas, RasAnswer, RasCommunicator, RasRank

LEAST_S = 10.0  # between two answers: ranks that work are often a collective apart
BY = "by NCCL's RAS"
COUNTED = "(RAS counts launches, not completions)"
NO_FIRST = "rank 0 of the job does not run on this host"  # as nodevet.remote.probe.nccl_listener
Process = tuple[str | None, int | None]
"""The host of a rank as RAS names it, and its pid."""


class Launches(NamedTuple):
    """What the answers say."""

    behind: Mapping[Process, str] = {}  # the ranks that hold the others up, and how
    texts: tuple[str, ...] = ()  # of all ranks


def with_launches(
    ranks: Sequence[Rank],
    late: Sequence[Rank],
    shown: Mapping[str, HostRanks],
    size: int | None,
    *,
    mismatch: str,
) -> tuple[list[Rank], list[Rank], list[str]]:
    """The ranks, the late ranks, and what RAS adds in words; `late`: those that everything else
    names."""
    answers, notes = _answers(shown)
    if not answers:
        return list(ranks), list(late), notes
    launches = compare_launches(answers)
    numbers = _numbers(answers[-1], ranks, size)
    behind = {numbers[at]: text for at, text in launches.behind.items() if at in numbers}
    notes += [*launches.texts, *_missing_texts(answers[-1], numbers)]
    strangers = [at for at in launches.behind if at not in numbers]
    if strangers:
        more = f"; {len(strangers) - 1} more" if len(strangers) > 1 else ""
        notes.append(f"{BY}, {_name(strangers[0])} {launches.behind[strangers[0]]}{more}")
    seen = [rank for rank in late if rank.state is not RankState.UNSEEN]
    if not behind:
        return list(ranks), list(late), notes
    if seen or mismatch or not all(rank.state in WAIT for rank in ranks):
        return list(ranks), list(late), [*notes, _compared_text(behind, seen)]
    named = [_behind(rank, behind) for rank in ranks]
    found = [rank for rank in named if rank.state is RankState.BEHIND]
    return named, found or list(late), notes


def _answers(shown: Mapping[str, HostRanks]) -> tuple[Sequence[RasAnswer], list[str]]:
    """The answers of the first host that has any, and why there are none or only one."""
    asked = {host: found.ras for host, found in shown.items() if found.ras}
    for host, found in asked.items():
        if isinstance(found, NcclRas) and found.answers:
            text = f"NCCL's RAS on {host} answered only once: {plain(found.why('answers'))}"
            return found.answers, [text] if len(found.answers) < 2 else []
    texts = {text: text.endswith(NO_FIRST) for text in map(_no_answer, asked, asked.values())}
    return (), sorted(texts, key=lambda text: texts[text])[:1]


def _no_answer(host: str, found: NcclRas | str) -> str:
    if isinstance(found, NcclRas) and found.not_asked:
        return f"nodevet did not ask NCCL's RAS on {host}: {plain(found.not_asked)}"
    why = found if isinstance(found, str) else found.why("answers")
    return f"NCCL's RAS on {host} gave no answer: {plain(why)}"


def compare_launches(answers: Sequence[RasAnswer]) -> Launches:
    """Which ranks launched fewer collectives than others of their communicator, and no more while
    nodevet watched. A rank that waits in one communicator may be late in another."""
    if len(answers) < 2 or answers[1].at_s - answers[0].at_s < LEAST_S:
        return Launches()
    earlier = {each.hash: each for each in answers[0].communicators or ()}
    pairs = [
        (earlier[each.hash], each)
        for each in answers[1].communicators or ()
        if each.hash in earlier
    ]
    few: dict[Process, str] = {}
    waiting: set[Process] = set()
    for before, after in pairs:
        slow, ahead = _behind_in(before, after)
        for at, text in slow.items():
            few.setdefault(at, text)
        waiting |= ahead
    if behind := {at: text for at, text in few.items() if at not in waiting}:
        return Launches(behind)
    if few:
        return Launches(texts=(f"{BY}, ranks wait for one another in different communicators",))
    return Launches(texts=_together(pairs))


def _behind_in(
    before: RasCommunicator, after: RasCommunicator
) -> tuple[dict[Process, str], set[Process]]:
    """The ranks of a communicator that hold the others up, and these others. The former have the
    fewest launches, launched no more and are at most half of it; or they did not answer twice while
    nobody launched more."""
    first = {rank.rank: rank for rank in before.ranks or ()}
    last = [rank for rank in after.ranks or () if rank.rank in first]
    frozen = [rank for rank in last if rank.launched == first[rank.rank].launched]
    if not last:
        return {}, set()
    fewest, most = min(map(_total, last)), max(map(_total, last))
    least = [rank for rank in frozen if _total(rank) == fewest < most]
    slow = {}
    if len(least) * 2 <= len(last):
        slow = {_process(rank): _few_text(rank, most) for rank in least}
    gone = {rank.rank for rank in before.missing or ()}
    for rank in after.missing or ():
        if rank.rank in gone and len(frozen) == len(last):
            slow[_process(rank)] = "did not answer twice"
    return slow, {_process(rank) for rank in last if _process(rank) not in slow} if slow else set()


def _total(rank: RasRank) -> int:
    return sum((rank.launched or {}).values())


def _few_text(rank: RasRank, most: int) -> str:
    return (
        f"has launched {_total(rank)} collectives of a communicator, and none during the watch; "
        f"others {most} {COUNTED}"
    )


def _together(pairs: Sequence[tuple[RasCommunicator, RasCommunicator]]) -> tuple[str, ...]:
    """What all ranks did, if none is behind."""
    if not pairs:
        return (f"{BY}, no communicator was there at the start and at the end of the watch",)
    counts = [
        ({rank.rank: rank.launched for rank in before.ranks or ()}, after.ranks or ())
        for before, after in pairs
    ]
    if not any(_total(rank) for _, ranks in counts for rank in ranks):
        return (f"{BY}, no rank launched a collective; it counts none of CUDA graphs",)
    if any(rank.launched != first.get(rank.rank) for first, ranks in counts for rank in ranks):
        return (f"{BY}, the ranks launched collectives during the watch {COUNTED}",)
    if any(rank.launched != ranks[0].launched for _, ranks in counts for rank in ranks):
        return (f"{BY}, the ranks launched different collectives, but no few of them are behind",)
    return (
        f"{BY}, all ranks launched the same collectives, and none during the watch {COUNTED}: if "
        f"they wait, then for the network or a GPU, and not for one rank",
    )


def _numbers(answer: RasAnswer, ranks: Iterable[Rank], size: int | None) -> Mapping[Process, int]:
    """The number in the job of each process that RAS names: its rank in the communicator of all
    ranks, or the number of the only rank with its pid. Nothing if these contradict, or put one
    host of RAS on two hosts."""
    listed = [rank for rank in ranks if rank.number is not None and rank.pid is not None]
    times = Counter(rank.pid for rank in listed)
    by_pid = {rank.pid: rank for rank in listed if times[rank.pid] == 1}
    found: dict[Process, set[int]] = {}
    hosts: dict[str | None, set[str]] = {}
    for group in answer.communicators or ():
        named: tuple[RasRank | MissingRank, ...] = (*(group.ranks or ()), *(group.missing or ()))
        for rank in named:
            numbers = found.setdefault(_process(rank), set())
            if size is not None and group.size == size:
                numbers.add(rank.rank)
            if known := by_pid.get(rank.pid):
                numbers.add(known.number or 0)
                hosts.setdefault(rank.host, set()).add(known.host)
    if max(map(len, found.values()), default=0) > 1 or max(map(len, hosts.values()), default=0) > 1:
        return {}
    return {at: numbers.pop() for at, numbers in found.items() if numbers}


def _behind(rank: Rank, behind: Mapping[int, str]) -> Rank:
    if rank.number is None or rank.number not in behind or rank.state is RankState.UNSEEN:
        return rank
    return replace(
        rank,
        state=RankState.BEHIND,
        cause=None,
        text=f"{BY} it {behind[rank.number]}",
        next_step=NEXT.format(rank.pid),
    )


def _compared_text(behind: Mapping[int, str], seen: Sequence[Rank]) -> str:
    """`seen`: the late ranks by everything else."""
    is_same = {rank.number for rank in seen} == set(behind)
    start = "NCCL's RAS agrees" if is_same else "NCCL's RAS names other ranks" if seen else BY
    return f"{start}: {all_behind(behind)}"


def _missing_texts(answer: RasAnswer, numbers: Mapping[Process, int]) -> list[str]:
    """The ranks that did not answer, each once."""
    missing = {
        _process(rank): rank for group in answer.communicators or () for rank in group.missing or ()
    }
    dead = [at for at, rank in missing.items() if rank.considered_dead]
    silent = [at for at in missing if at not in dead]
    texts = (("considers dead", dead), ("got no answer from", silent))
    return [f"NCCL's RAS {verb} {_names(them, numbers)}" for verb, them in texts if them]


def _names(processes: Sequence[Process], numbers: Mapping[Process, int]) -> str:
    known = [numbers[at] for at in processes if at in numbers]
    others = [_name(at) for at in processes if at not in numbers]
    more = [f"{len(others) - 3} more"] if len(others) > 3 else []
    return ", ".join([*([ranks_text(known)] if known else []), *others[:3], *more])


def _name(at: Process) -> str:
    return f"process {at[1]} on {plain(at[0] or '?')}"


def _process(rank: RasRank | MissingRank) -> Process:
    return rank.host, rank.pid
