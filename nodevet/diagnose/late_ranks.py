"""Which ranks of a job the others wait for, and how certain that is (pure).

In a job that synchronizes, a rank that entered a collective polls or sleeps until the last rank
enters it. So a rank that does anything else is late.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodevet.base.printable import plain
from nodevet.diagnose.claims import sentence as describe
from nodevet.diagnose.doubts import COLLECTIVE
from nodevet.diagnose.gpm import is_of_parts
from nodevet.diagnose.job_ranks import HostRanks
from nodevet.diagnose.late_dumps import MISMATCH_STEP, with_dumps
from nodevet.diagnose.launches import with_launches
from nodevet.diagnose.model import (
    DOWN,
    POLLS,
    Cause,
    Confidence,
    GpuDiagnosis,
    HostDiagnosis,
    JobDiagnosis,
    JobTarget,
    Rank,
    RankState,
)
from nodevet.diagnose.shared_cpus import with_own_causes
from nodevet.diagnose.slow_clock import with_slow_clocks
from nodevet.diagnose.unsure import is_mixed, unsure
from nodevet.diagnose.words import ranks_text
from nodevet.evidence.lists import spans
from nodevet.sheet.text import count, name, nodeset

MOST = 100_000  # ranks
SKEW = 0.2  # of the watch: hosts that began further apart were not seen at one moment
HANG = (
    "py-spy dump --nonblocking --pid PID on any rank shows the collective; a hang or a slow "
    "network between the hosts looks like this: see whether a suspect below is a port or a link"
)
NEVER_SEEN = "nodevet saw no process of it: it ended, never began, or was not recognized"
NEVER_ON_GPU = "nodevet saw no process of it on a GPU: it ended, never began, or uses no GPU"
"""Of a list: of a scheduler's job, nodevet watches the processes without a GPU, too."""
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
    ranks, refused = _without_twins([rank for host_ranks in shown for rank in host_ranks.ranks])
    doubts += refused
    size = _size(target, ranks, doubts)
    others = [rank for host_ranks in shown for rank in host_ranks.others]
    ranks += _absent(target, ranks, others, size, doubts, is_partial=bool(unseen))
    ranks.sort(key=lambda rank: (rank.number is None, rank.number or 0, rank.host, rank.gpus))
    ranks += [
        Rank(host=host, state=RankState.UNSEEN, text=f"not seen: {why}")
        for host, why in unseen.items()
    ]
    doubts += [*target.missing, *filter(None, [target.changed])]
    doubts += [text for host_ranks in shown for text in host_ranks.doubts]
    if apart > SKEW:
        doubts.append("the watch did not begin at the same time on all hosts")
    ranks, late, mismatch, more, contradiction, notes = with_dumps(
        ranks, late_ranks(ranks), found, size
    )
    ranks, late, unclear = with_own_causes(ranks, late, hosts, found)
    if not mismatch:
        ranks, late = with_slow_clocks(ranks, late, hosts)
    ranks, late, of_ras = with_launches(ranks, late, found, size, mismatch=mismatch)
    among = frozenset(late)
    doubts += [*more, *unclear]
    confidence, why = _confidence(late, ranks, size, doubts, contradiction)
    is_low = confidence is Confidence.LOW
    claim, reasons = _claim(late, ranks, mismatch, is_low=is_low), _reasons(late)
    return JobDiagnosis(
        name=target.name,
        size=size,
        ranks=tuple(ranks),
        late=tuple(place for place, rank in enumerate(ranks) if rank in among),
        mismatch=mismatch,
        confidence=confidence,
        sentence=f"{claim}: {'; '.join(reasons)}" if reasons else claim,
        claim=claim,
        reasons=reasons,
        next_step=MISMATCH_STEP if mismatch else _next_step_text(late, ranks, strangers(shown)),
        doubts=(*doubts, *why),
        notes=(*(text for host_ranks in shown for text in host_ranks.notes), *notes, *of_ras),
    )


def _without_twins(ranks: Iterable[Rank]) -> tuple[list[Rank], list[str]]:
    """The ranks; a number that several processes claim belongs to none of them."""
    listed = list(ranks)
    claims = Counter(rank.number for rank in listed if rank.number is not None)
    twins = {number for number, claimed in claims.items() if claimed > 1}
    texts = [f"several processes claim to be {ranks_text(twins)}, so nodevet believes none of them"]
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
        doubts.append(f"its processes disagree about its number of ranks: {spans(sizes)}")
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
    if any(rank.number is None for rank in ranks):
        if len(ranks) < len(expected):
            doubts.append(f"not seen: {len(expected) - len(ranks)} of {len(expected)} ranks")
        return
    if not missing:
        return
    is_listed = bool(target.listed)
    # a launcher has a number of its own among others; children come after their parents
    by_number = {rank.number: rank for rank in others if is_listed or rank.size == size}
    yield from (by_number[number] for number in missing if number in by_number)
    missing -= set(by_number)
    if not missing:
        return
    doubts.append(f"not seen: {ranks_text(missing)} of {size}")
    if len(missing) <= len(ranks) and not is_partial:
        text = NEVER_ON_GPU if is_listed else NEVER_SEEN
        yield from (Rank(number=number, state=RankState.UNSEEN, text=text) for number in missing)


def late_ranks(ranks: Sequence[Rank]) -> list[Rank]:
    """The ranks that the others wait for; none if all do the same, or most are held up."""
    seen = [rank for rank in ranks if rank.state is not RankState.UNSEEN]
    down = [rank for rank in seen if _is_down(rank)]
    held = _held_up(seen)
    if (down or held) and len(down) < len(seen):
        return [*down, *held] if len(held) * 2 <= len(seen) else down
    of = {state: [rank for rank in seen if rank.state is state] for state in RankState}
    if len(of[RankState.HELD_UP]) * 2 > len(seen):
        return []
    asleep = [*of[RankState.NO_GPU], *of[RankState.QUIET]]
    polls, computes = of[RankState.WAITS], of[RankState.COMPUTES]
    apart = [rank for rank in asleep if rank.cause in (Cause.UNCLEAR, Cause.STUCK)]
    first = [*computes, *asleep] if polls else computes
    able = len(polls) + len(asleep) + len(computes)
    for few in (first, asleep, apart):
        if few and len(few) < able and len(few) * 2 <= len(seen):
            return few
    is_all = len(asleep) + len(polls) == len(seen)
    return [rank for rank in ranks if rank.state is RankState.UNSEEN] if is_all else []


def _held_up(seen: Sequence[Rank]) -> list[Rank]:
    """Those that a cause of their own holds up, which most do not have. Of a mixture, all causes
    are their own, or one is a fact."""
    causes_of = {rank: set(rank.causes or (rank.cause,)) for rank in seen}
    times = Counter(cause for causes in causes_of.values() for cause in causes)
    common = {cause for cause in times if times[cause] * 2 > len(seen)}
    return [
        rank
        for rank in seen
        if rank.state is RankState.HELD_UP and not _is_down(rank)
        if not causes_of[rank] & common or Cause.THROTTLED in causes_of[rank] - common
    ]


def _is_down(rank: Rank) -> bool:
    return rank.state in DOWN or rank.cause is Cause.LOST


def _confidence(
    late: Sequence[Rank],
    ranks: Sequence[Rank],
    size: int | None,
    doubts: Sequence[str],
    contradiction: str,
) -> tuple[Confidence, list[str]]:
    """How certain it is, and what else lowers it. A contradiction outweighs what is no fact."""
    why = [contradiction] if contradiction else []
    if size is None:
        why.append("nodevet could not read how many ranks it has")
    if any(rank.number is None for rank in ranks):
        why.append("not every rank number is known")
    if len({(rank.state, rank.cause) for rank in late}) > 1:
        why.append("several ranks are late, for different reasons")
    if late and not are_waiting(late, ranks):
        why.append("nodevet did not see most of the others wait")
    is_fact = all(_is_fact(rank) for rank in late)
    if more := list(unsure(late, ranks)):
        return Confidence.LOW, [*why, *more]
    if doubts or any(rank.state is RankState.UNSEEN for rank in late):
        return Confidence.LOW, why
    if contradiction and not is_fact:
        return Confidence.LOW, why
    if not late or why or not is_fact:
        return Confidence.MEDIUM, why
    return Confidence.HIGH, why


def are_waiting(late: Sequence[Rank], ranks: Sequence[Rank]) -> bool:
    """Whether most of the others were seen to wait, for whatever it is."""
    among = frozenset(late)
    others = [rank.state in POLLS for rank in ranks if rank not in among]
    return sum(others) * 2 > len(others)


def _is_fact(rank: Rank) -> bool:
    """Whether the kernel or the driver says by itself that a rank does not work as it could."""
    is_slow = rank.cause in (Cause.LOST, Cause.THROTTLED) and rank.confidence is Confidence.HIGH
    return rank.state in DOWN or is_slow


def label(ranks: Sequence[Rank]) -> str:
    """`rank 7 on n3`, `ranks 0-6,8-63 on n[1-8]`, `python 4711 on n3`."""
    numbers = [rank.number for rank in ranks if rank.number is not None]
    hosts = nodeset({rank.host for rank in ranks if rank.host})
    if len(numbers) == len(ranks):
        text = ranks_text(numbers)
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


def _claim(
    late: Sequence[Rank], ranks: Sequence[Rank], mismatch: str, *, is_low: bool = False
) -> str:
    """Who waits for whom. `is_low`: confidence is low."""
    if mismatch:
        return f"no rank is late: by the dumps of the flight recorder, {mismatch}"
    seen = [rank for rank in ranks if rank.state is not RankState.UNSEEN]
    if not seen:
        return "no rank was seen"
    if not late:
        return _nobody(seen)
    among = frozenset(late)
    others = [rank for rank in seen if rank not in among]
    wait = "waits" if len(others) == 1 else "wait"
    if is_low:
        wait = "seems to wait" if len(others) == 1 else "seem to wait"
    text = f"{label(others)} {wait} for {label(late)}"
    if not are_waiting(late, ranks):
        text = f"{label(late)} {'is' if len(late) == 1 else 'are'} slower than {label(others)}"
    if host := one_host(late, ranks):
        return f"{text}: every rank on {name(host)} is late, so look at that host first"
    return text


def _reasons(late: Sequence[Rank]) -> tuple[str, ...]:
    """What the late ranks do: a text for those of one host that do the same."""
    groups = group_ranks(late)
    if len(groups) < 2:
        return tuple(map(_group_text, groups))
    return tuple(f"{label(group)}: {_group_text(group)}" for group in groups)


def group_ranks(ranks: Iterable[Rank]) -> list[list[Rank]]:
    """Ranks of one host that do the same."""
    groups: dict[object, list[Rank]] = {}
    for rank in ranks:
        groups.setdefault((rank.host, rank.state, rank.cause), []).append(rank)
    return list(groups.values())


def _group_text(group: Sequence[Rank]) -> str:
    rank = group[0]
    if rank.state is RankState.COMPUTES:
        return f"computes while the others do not: {rank.text}"
    is_own = rank.state in (RankState.HELD_UP, RankState.QUIET) and rank.cause
    return f"{rank.cause.value}: {rank.text}" if is_own and rank.cause else rank.text


def _nobody(seen: Sequence[Rank]) -> str:
    if len(seen) == 1:
        return f"nodevet saw only {label(seen)}, and has nothing to compare it with"
    if cause := common_cause(seen):
        return f"all {len(seen)} ranks are {cause.value}: no single rank is late"
    states = Counter(rank.state for rank in seen)
    if states <= Counter(dict.fromkeys(DOWN, len(seen))):
        return f"no rank runs: {', '.join(f'{state.value} {states[state]}' for state in states)}"
    if states[RankState.COMPUTES] * 2 > len(seen):
        return "no single rank is late: most of them compute"
    if states[RankState.HELD_UP] * 2 > len(seen):
        causes = Counter(
            rank.cause for rank in seen if rank.state is RankState.HELD_UP and rank.cause
        )
        listed = ", ".join(f"{cause.value} {times}" for cause, times in causes.most_common())
        return f"no single rank is late: most of them have a cause of their own ({listed})"
    if is_mixed(seen):
        return "it is not clear which rank waits for which"
    return f"all {len(seen)} ranks wait, and nodevet saw no late one"


def common_cause(ranks: Iterable[Rank]) -> Cause | None:
    """The one cause that holds up each of several ranks; None if there is none."""
    listed = list(ranks)
    causes = {rank.cause for rank in listed}
    is_one = len(listed) > 1 and len(causes) == 1 and Cause.MIXED not in causes
    is_held = all(rank.state is RankState.HELD_UP for rank in listed)
    return causes.pop() if is_one and is_held else None


def strangers(shown: Iterable[HostRanks]) -> list[str]:
    """The processes on GPUs that are not known to be of the job."""
    return [name for host_ranks in shown for name in host_ranks.strangers]


def _next_step_text(late: Sequence[Rank], ranks: Sequence[Rank], others: Sequence[str]) -> str:
    """`others`: processes on GPUs that may be ranks that nodevet did not recognize."""
    first = next((rank for rank in late if rank.next_step), None)
    if first:
        return f"{label([first])}: {first.next_step}"
    if any(rank.state is RankState.UNSEEN and rank.host for rank in ranks):
        return WATCH_ALL
    states = {rank.state for rank in ranks}
    if late:
        return _find(late, others)
    if common_cause(ranks):
        return f"{label(ranks[:1])}, as on the others: {ranks[0].next_step}"
    return HANG if states <= {*POLLS} else "no single rank holds up the others: see each GPU"


def _find(late: Sequence[Rank], others: Sequence[str]) -> str:
    """How to find out what became of ranks that nodevet did not see."""
    who = label(late)
    steps = [
        f"read the end of the log of {who}, and look in `dmesg -T` on its host for an Xid or the "
        "OOM killer",
        "ask the owner of the job whether it is still starting",
    ]
    if others:
        name, pid = others[0], others[0].rpartition(" ")[2]
        look = f"grep -z RANK /proc/{pid}/environ | tr '\\0' '\\n'"
        steps.insert(
            0,
            f"{name} may be {who} without its label: {look}; stop nothing before its owner says so",
        )
    return "; ".join(steps)


def with_waits(hosts: Iterable[HostDiagnosis], job: JobDiagnosis) -> list[HostDiagnosis]:
    """The hosts with the GPUs of the job alone; one that waits for a late rank says only that."""
    late = frozenset(job.late_ranks)
    known = any(rank.state is not RankState.UNSEEN for rank in late)
    whom = label(job.late_ranks) if known else ""
    by_host: dict[str, list[Rank]] = {}
    for rank in job.ranks:
        by_host.setdefault(rank.host, []).append(rank)
    return [_on_host(host, by_host.get(host.host, ()), job, late, whom) for host in hosts]


def _on_host(
    host: HostDiagnosis,
    ranks: Iterable[Rank],
    job: JobDiagnosis,
    late: Container[Rank],
    whom: str,
) -> HostDiagnosis:
    """`whom`: the late ranks in words; empty if no rank is seen to be late."""
    by_gpu: dict[int, list[Rank]] = {}
    for rank in ranks:
        for index in rank.gpus:
            by_gpu.setdefault(index, []).append(rank)
    gpus = []
    for gpu in host.gpus:
        mine = by_gpu.get(gpu.index, ())
        if down := next((rank for rank in reversed(mine) if rank.state in DOWN), None):
            gpus.append(_stopped_diagnosis(gpu, down))
        elif whom and all(rank not in late and rank.state in POLLS for rank in mine):
            gpus.append(_waiting(gpu, job, whom))
        elif mixed := next((rank for rank in mine if rank.causes not in ((), gpu.causes)), None):
            gpus.append(_mixed_diagnosis(gpu, mixed))
        else:
            gpus.append(gpu)
    used = tuple(gpu for gpu in gpus if gpu.index in by_gpu)
    why = "" if used else host.why or "no process of the job uses a GPU there"
    return replace(host, gpus=used, why=why)


def _stopped_diagnosis(gpu: GpuDiagnosis, rank: Rank) -> GpuDiagnosis:
    text = f"belongs to a process that does not run: {rank.text}"
    return replace(_claiming(gpu, text), next_step=rank.next_step)


def _mixed_diagnosis(gpu: GpuDiagnosis, rank: Rank) -> GpuDiagnosis:
    return replace(
        gpu,
        cause=Cause.MIXED if len(rank.causes) > 1 else rank.causes[0],
        causes=rank.causes,
        confidence=rank.confidence,
        sentence=rank.text,
        claim=rank.text,
        proofs=(),
        gain="",
        next_step=rank.next_step,
    )


def _waiting(gpu: GpuDiagnosis, job: JobDiagnosis, whom: str) -> GpuDiagnosis:
    return replace(
        _claiming(_in_collective(gpu), f"waits in a collective for {whom}"),
        cause=Cause.COLLECTIVE,
        causes=(Cause.COLLECTIVE,),
        confidence=job.confidence,
        next_step=f"nothing to do here: look at {whom}",
    )


def _claiming(gpu: GpuDiagnosis, text: str) -> GpuDiagnosis:
    """The GPU with this claim; its own one is the first of its facts."""
    own = f"by itself it {gpu.claim}"
    proofs = [
        replace(proof, facts=(own, *proof.facts) if place == 0 else proof.facts)
        for place, proof in enumerate(gpu.proofs)
    ]
    sentence = f"{text}; by itself it {gpu.sentence}"
    return replace(gpu, sentence=sentence, claim=text, proofs=tuple(proofs))


def _in_collective(gpu: GpuDiagnosis) -> GpuDiagnosis:
    """The GPU without the doubt that it may wait in a collective, and with what its SMs did as a
    fact: for a GPU that does wait in one."""
    proofs = [
        replace(
            proof,
            facts=(*proof.facts, *(doubt for doubt in proof.doubts if is_of_parts(doubt))),
            doubts=tuple(doubt for doubt in map(_own_doubt, proof.doubts) if doubt),
        )
        for proof in gpu.proofs
    ]
    text = describe(gpu.claim, proofs, gpu.gain)
    return replace(gpu, sentence=text, proofs=tuple(proofs))


def _own_doubt(doubt: str) -> str:
    """What is left of a doubt about a GPU that waits in a collective."""
    return "" if is_of_parts(doubt) else doubt.replace(COLLECTIVE, "").removesuffix(", but ")
