"""Which ranks of a job the others wait for, and how certain that is (pure).

In a job that synchronizes, a rank that arrived polls or sleeps in a collective until the last one
comes. So the last one is who does anything else.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodevet.base.printable import plain
from nodevet.diagnose.job_ranks import HostRanks
from nodevet.diagnose.model import (
    Cause,
    Confidence,
    GpuDiagnosis,
    HostDiagnosis,
    JobDiagnosis,
    JobTarget,
    Rank,
    RankState,
)
from nodevet.evidence.lists import spans
from nodevet.sheet.text import count, name, nodeset

DOWN = (RankState.ENDED, RankState.STOPPED)
POLLS = (RankState.WAITS, RankState.QUIET, RankState.NO_GPU)
MOST = 100_000  # ranks
SKEW = 0.2  # of the watch: hosts that began further apart were not seen at one moment
HANG = (
    "py-spy dump --native --pid PID on any rank shows the collective; a hang or a slow network "
    "between the hosts looks like this: compare InfiniBand counters and links with `nodevet check`"
)
WATCH_ALL = "watch the hosts that were not seen, too: -i must name them, and they must answer"


def job_diagnosis(
    target: JobTarget,
    hosts: Sequence[HostDiagnosis],
    found: Mapping[str, HostRanks],
    unseen: Mapping[str, str],
    apart: float,
) -> JobDiagnosis:
    """`unseen`: why each host of the job was not watched; `apart`: the first and the last host
    began, as a share of the watch."""
    shown = [found[host.host] for host in hosts if host.host in found]
    doubts = [f"{name(host)} was not seen: {plain(why)}" for host, why in unseen.items()]
    ranks, refused = _without_twins([rank for each in shown for rank in each.ranks])
    doubts += refused
    size = _size(target, ranks, doubts)
    others = [rank for each in shown for rank in each.others]
    ranks += _absent(target, ranks, others, size, doubts, is_partial=bool(unseen))
    ranks.sort(key=lambda rank: (rank.number is None, rank.number or 0, rank.host, rank.gpus))
    ranks += [
        Rank(host=host, state=RankState.UNSEEN, text=f"not seen: {why}")
        for host, why in unseen.items()
    ]
    doubts += [*target.missing, *filter(None, [target.changed])]
    doubts += [text for each in shown for text in each.doubts]
    if apart > SKEW:
        doubts.append("the hosts did not begin at one moment")
    late = late_ranks(ranks)
    confidence, why = _confidence(late, ranks, size, doubts)
    return JobDiagnosis(
        name=target.name,
        size=size,
        ranks=tuple(ranks),
        late=tuple(place for place, rank in enumerate(ranks) if rank in late),
        confidence=confidence,
        sentence=_sentence(late, ranks),
        next_step=_next(late, ranks),
        doubts=(*doubts, *why),
        notes=tuple(text for each in shown for text in each.notes),
    )


def _without_twins(ranks: Iterable[Rank]) -> tuple[list[Rank], list[str]]:
    """The ranks; a number that several processes claim belongs to none of them."""
    listed = list(ranks)
    claims = Counter(rank.number for rank in listed if rank.number is not None)
    twins = {number for number, claimed in claims.items() if claimed > 1}
    texts = [f"several processes say that they are {_ranks(twins)}: none is believed"]
    return (
        [replace(rank, number=None) if rank.number in twins else rank for rank in listed],
        texts if twins else [],
    )


def _size(target: JobTarget, ranks: Iterable[Rank], doubts: list[str]) -> int | None:
    if target.listed:
        return len(target.listed)
    sizes = {rank.size for rank in ranks if rank.size is not None}
    if len(sizes) == 1 and max(sizes) <= MOST:
        return sizes.pop()
    if sizes:
        doubts.append(f"its processes say that it has {spans(sizes)} ranks: none is believed")
    return None


def _absent(
    target: JobTarget,
    ranks: Sequence[Rank],
    others: Iterable[Rank],
    size: int | None,
    doubts: list[str],
    *,
    is_partial: bool,
) -> Iterator[Rank]:
    """The ranks that the job has and that no GPU shows. Only if every rank that was seen has a
    number; far more than were seen are a wrong size. `is_partial`: a host was not seen."""
    expected = {row.rank for row in target.listed} or set(range(size or 0))
    missing = expected - {rank.number for rank in ranks}
    if not missing or any(rank.number is None for rank in ranks):
        return
    is_listed = bool(target.listed)
    # a launcher has a number of its own among others; children come after their parents
    by_number = {rank.number: rank for rank in others if is_listed or rank.size == size}
    yield from (by_number[number] for number in missing if number in by_number)
    missing -= set(by_number)
    if not missing:
        return
    doubts.append(f"not seen: {_ranks(missing)} of {size}")
    if len(missing) <= len(ranks) and not is_partial:
        text = "no process of it was seen: it ended, or it never began"
        yield from (Rank(number=each, state=RankState.UNSEEN, text=text) for each in missing)


def late_ranks(ranks: Sequence[Rank]) -> list[Rank]:
    """Those that the others wait for; none if all do the same, or most are held up."""
    seen = [rank for rank in ranks if rank.state is not RankState.UNSEEN]
    down = [rank for rank in seen if rank.state in DOWN or rank.cause is Cause.LOST]
    causes = Counter(rank.cause for rank in seen)
    held = [
        rank
        for rank in seen
        if rank.state is RankState.HELD_UP
        and rank not in down
        and causes[rank.cause] * 2 <= len(seen)
    ]
    if (down or held) and len(down) < len(seen):
        return [*down, *held] if len(held) * 2 <= len(seen) else down
    of = {state: [rank for rank in seen if rank.state is state] for state in RankState}
    asleep = [*of[RankState.NO_GPU], *of[RankState.QUIET]]
    polls = of[RankState.WAITS]
    few, waiting = (
        (of[RankState.COMPUTES], [*asleep, *polls]) if of[RankState.COMPUTES] else (asleep, polls)
    )
    if few and waiting and len(few) * 2 <= len(seen):
        return few
    is_all = len(asleep) + len(polls) == len(seen)
    return [rank for rank in ranks if rank.state is RankState.UNSEEN] if is_all else []


def _confidence(
    late: Sequence[Rank], ranks: Sequence[Rank], size: int | None, doubts: Sequence[str]
) -> tuple[Confidence, list[str]]:
    """How certain it is, and what else lowers it."""
    why = []
    if size is None:
        why.append("how many ranks it has was not read")
    if any(rank.number is None for rank in ranks):
        why.append("not every rank number is known")
    if len({(rank.state, rank.cause) for rank in late}) > 1:
        why.append("several ranks are late, each for another reason")
    if late and not are_waiting(late, ranks):
        why.append("most of the others are not seen to wait")
    if doubts or any(rank.state is RankState.UNSEEN for rank in late):
        return Confidence.LOW, why
    if not late or why or not all(_is_fact(rank) for rank in late):
        return Confidence.MEDIUM, why
    return Confidence.HIGH, why


def are_waiting(late: Sequence[Rank], ranks: Sequence[Rank]) -> bool:
    """Whether most of the others were seen to wait, for whatever it is."""
    others = [rank.state in POLLS for rank in ranks if rank not in late]
    return sum(others) * 2 > len(others)


def _is_fact(rank: Rank) -> bool:
    """Whether the kernel or the driver says by itself that a rank does not work as it could."""
    is_slow = rank.cause in (Cause.LOST, Cause.THROTTLED) and rank.confidence is Confidence.HIGH
    return rank.state in DOWN or is_slow


def _ranks(numbers: Iterable[int | None]) -> str:
    listed = [number for number in numbers if number is not None]
    return f"rank{'s' if len(listed) > 1 else ''} {spans(listed)}"


def label(ranks: Sequence[Rank]) -> str:
    """`rank 7 on n3`, `ranks 0-6,8-63 on n[1-8]`, `python 4711 on n3`."""
    numbers = [rank.number for rank in ranks]
    hosts = nodeset({rank.host for rank in ranks if rank.host})
    if None not in numbers:
        text = _ranks(numbers)
    elif len(ranks) == 1:
        text = f"{plain(ranks[0].command) or 'a rank'} {ranks[0].pid or ''}".strip()
    else:
        text = count(len(ranks), "rank")
    return f"{text} on {hosts}" if hosts else text


def one_host(late: Sequence[Rank], ranks: Sequence[Rank]) -> str:
    """The only host of several late ranks, if all of its ranks are late."""
    hosts = {rank.host for rank in late}
    everybody = [rank for rank in ranks if rank.host in hosts]
    return hosts.pop() if len(hosts) == 1 and 1 < len(late) == len(everybody) else ""


def _sentence(late: Sequence[Rank], ranks: Sequence[Rank]) -> str:
    seen = [rank for rank in ranks if rank.state is not RankState.UNSEEN]
    if not seen:
        return "no rank was seen"
    if not late:
        return _nobody(seen)
    others = [rank for rank in seen if rank not in late]
    groups = "; ".join(f"{label(group)}: {_what(group)}" for group in grouped(late))
    start = f"{label(others)} wait{'s' if len(others) == 1 else ''} for {label(late)}"
    if not are_waiting(late, ranks):
        start = f"{label(late)} {'is' if len(late) == 1 else 'are'} slower than {label(others)}"
    if host := one_host(late, ranks):
        return f"{start}: every rank on {name(host)} is late, so look at that host first: {groups}"
    return f"{start}: {groups}" if len(grouped(late)) > 1 else f"{start}: {_what(late)}"


def grouped(ranks: Iterable[Rank]) -> list[list[Rank]]:
    """Ranks of one host that do the same."""
    groups: dict[object, list[Rank]] = {}
    for rank in ranks:
        groups.setdefault((rank.host, rank.state, rank.cause), []).append(rank)
    return list(groups.values())


def _what(group: Sequence[Rank]) -> str:
    rank = group[0]
    if rank.state is RankState.COMPUTES:
        return f"computes while the others do not: {rank.text}"
    is_own = rank.state in (RankState.HELD_UP, RankState.QUIET) and rank.cause
    return f"{rank.cause.value}: {rank.text}" if is_own and rank.cause else rank.text


def _nobody(seen: Sequence[Rank]) -> str:
    if len(seen) == 1:
        return f"only {label(seen)} was seen: there is nothing to compare it with"
    states = Counter(rank.state for rank in seen)
    if states <= Counter(dict.fromkeys(DOWN, len(seen))):
        return f"no rank runs: {', '.join(f'{each.value} {states[each]}' for each in states)}"
    if states[RankState.COMPUTES] * 2 > len(seen):
        return "no rank waits for one other: most of them compute"
    if states[RankState.HELD_UP] * 2 > len(seen):
        causes = Counter(
            rank.cause for rank in seen if rank.state is RankState.HELD_UP and rank.cause
        )
        listed = ", ".join(f"{cause.value} {times}" for cause, times in causes.most_common())
        return f"no rank waits for one other: most of them are held up by themselves ({listed})"
    return f"all {len(seen)} ranks wait, and none is seen to be late"


def _next(late: Sequence[Rank], ranks: Sequence[Rank]) -> str:
    first = next((rank for rank in late if rank.next_step), None)
    if first:
        return f"{label([first])}: {first.next_step}"
    if any(rank.state is RankState.UNSEEN and rank.host for rank in ranks):
        return WATCH_ALL
    states = {rank.state for rank in ranks}
    if late:
        return "look for its end in its log, and for an Xid or the OOM killer in dmesg"
    return HANG if states <= {*POLLS} else "nothing to do for one rank: see each GPU's cause"


def with_waits(host: HostDiagnosis, job: JobDiagnosis) -> HostDiagnosis:
    """The host with the GPUs of the job alone; one that waits for a late rank says only that."""
    late = job.late_ranks
    mine = [rank for rank in job.ranks if rank.host == host.host and rank.gpus]
    used = {index for rank in mine for index in rank.gpus}
    busy = {
        index for rank in mine if rank in late or rank.state not in POLLS for index in rank.gpus
    }
    down = {index: rank for rank in mine if rank.state in DOWN for index in rank.gpus}
    known = any(rank.state is not RankState.UNSEEN for rank in late)
    gpus = tuple(
        _down(gpu, down[gpu.index])
        if gpu.index in down
        else _waiting(gpu, job, late)
        if known and gpu.index not in busy
        else gpu
        for gpu in host.gpus
        if gpu.index in used
    )
    why = "" if gpus else host.why or "no process of the job uses a GPU there"
    return replace(host, gpus=gpus, why=why)


def _down(gpu: GpuDiagnosis, rank: Rank) -> GpuDiagnosis:
    text = f"belongs to a process that does not run: {rank.text}; by itself it {gpu.sentence}"
    return replace(gpu, sentence=text, next_step=rank.next_step)


def _waiting(gpu: GpuDiagnosis, job: JobDiagnosis, late: Sequence[Rank]) -> GpuDiagnosis:
    return replace(
        gpu,
        cause=Cause.COLLECTIVE,
        causes=(Cause.COLLECTIVE,),
        confidence=job.confidence,
        sentence=f"waits in a collective for {label(late)}; by itself it {gpu.sentence}",
        next_step=f"nothing to do here: look at {label(late)}",
    )
