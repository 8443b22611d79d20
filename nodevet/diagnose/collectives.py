"""Which rank of a job is behind in its collectives, by dumps of PyTorch's flight recorder (pure).

A rank only ever gets further. So a dump shows at least how far its rank is, whatever its age; and a
rank was behind only if its dump was written when the others had waited for it for a while.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median_low
from typing import NamedTuple

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.diagnose.words import ranks_text
from nodevet.evidence.lists import spans
from nodevet.evidence.process_activity import FlightDump, FlightGroup

WAITED_S = 10.0  # from here on the others wait; ranks that work differ by a step or two
TOGETHER_S = 60.0  # dumps that were written further apart may show different moments
OLD_S = 600.0  # what ranks did since is not in a dump
DONE, STARTED = "completed", "started"
OUTSIDE, ENTERED, RUNS = range(3)
MOST_RANKS = 100_000  # of a job
LONGEST_NAME = 40  # columns
EQUAL_SIZES = ("all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base")
"""The collectives whose inputs have the same sizes on every rank."""


class RankDump(NamedTuple):
    """The dump of one rank, or why it has none."""

    rank: int
    flight: FlightDump | None
    why: str = ""


class DumpedRanks(NamedTuple):
    """What the dumps say about the ranks of a job."""

    behind: Mapping[int, str] = {}  # rank -> the collective in which the others wait for it
    waiting: frozenset[int] = frozenset()  # ranks that wait in a collective
    mismatch: str = ""  # which ranks call different collectives
    together: str = ""  # the collective in which every rank of its group waits
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # which dumps are left out, and why
    age_s: float = 0.0  # of the oldest dump


class GroupPlace(NamedTuple):
    """How far a rank is in a process group: the collective that it has to complete next, and
    whether it is OUTSIDE, has ENTERED it, or it RUNS on its GPU."""

    sequence: int
    level: int


class DumpedGroup(NamedTuple):
    """A process group, with those of its ranks whose dumps say how far they are."""

    name: str
    groups: Mapping[int, FlightGroup]  # of the ranks whose dumps hold its collectives
    places: Mapping[int, GroupPlace]
    front: GroupPlace  # the furthest
    waiting: tuple[int, ...]  # the ranks there, if they wait in a collective
    age_s: float | None  # since most of these had entered it
    behind: frozenset[int]
    unknown: frozenset[int]  # ranks of the group of which no dump says how far they are

    @property
    def collective(self) -> str:
        """`nccl:all_reduce 118 of 1024x8 in group 0`, in which those wait."""
        return collective_text(self.groups[self.waiting[0]])

    @property
    def waiting_text(self) -> str:
        """The ranks that wait, in words."""
        return ranks_text(self.waiting)


def collective_text(group: FlightGroup) -> str:
    sizes = f" of {plain(group.sizes)}" if group.sizes else ""
    name = brief(group.collective or "?", LONGEST_NAME)
    return f"{name} {group.sequence}{sizes} in group {brief(group.group, LONGEST_NAME)}"


def dumped_ranks(dumps: Iterable[RankDump], size: int | None) -> DumpedRanks:
    """What the dumps say. `size`: how many ranks the job has, if that is known."""
    listed = list(dumps)
    if all(dump.flight is None for dump in listed):
        return DumpedRanks()
    believed, notes = _believed_dumps(listed, size)
    groups = list(_groups(believed))
    if mismatch := next(filter(None, map(_mismatch, groups)), ""):
        return _answer(believed, notes, mismatch=mismatch)
    waits = [group for group in groups if group.waiting]
    late = [(group, _late(group, believed, notes)) for group in waits if group.behind]
    held = {rank for group, ranks in late if ranks for rank in group.waiting}
    named = {rank for _, ranks in late for rank in ranks}
    if named and named <= held:
        text = f"ranks {spans(named)} wait for one another, each in another process group"
        return _answer(believed, notes, mismatch=text)
    roots = named - held
    behind: dict[int, str] = {}
    missing: set[int] = set()
    for group, ranks in sorted(late, key=lambda group_ranks: -(group_ranks[0].age_s or 0.0)):
        wait = f"{group.waiting_text} wait{'s' * (len(group.waiting) == 1)}"
        front = f"{group.collective}, in which {wait}"
        missing |= group.unknown if ranks & roots else set()
        for rank in sorted(ranks & roots):
            behind.setdefault(rank, _behind_text(group, rank, believed[rank], front))
    whole = [group for group in waits if not group.behind and not group.unknown]
    return _answer(
        believed,
        notes,
        behind=behind,
        waiting=frozenset(rank for group in waits for rank in group.waiting) - roots,
        missing=missing,
        together=whole[0].collective if whole and not behind else "",
    )


def _answer(
    believed: Mapping[int, FlightDump],
    notes: Sequence[str],
    *,
    behind: Mapping[int, str] | None = None,
    waiting: frozenset[int] = frozenset(),
    missing: Collection[int] = (),
    mismatch: str = "",
    together: str = "",
) -> DumpedRanks:
    ages = [dump.age_s for dump in believed.values() if dump.age_s is not None] or [0.0]
    doubts = []
    if missing:
        doubts.append(f"no dump shows how far {ranks_text(missing)} got")
    if max(ages) - min(ages) > TOGETHER_S:
        doubts.append(f"the dumps were written {elapsed(max(ages) - min(ages))} apart")
    if max(ages) > OLD_S:
        doubts.append(
            f"a dump is {elapsed(max(ages))} old and does not show what the ranks did since"
        )
    return DumpedRanks(
        behind=behind or {},
        waiting=waiting,
        mismatch=mismatch,
        together=together,
        doubts=tuple(doubts),
        notes=tuple(notes),
        age_s=max(ages),
    )


def _believed_dumps(
    dumps: Sequence[RankDump], size: int | None
) -> tuple[dict[int, FlightDump], list[str]]:
    """The dumps of the ranks of this job, and which are left out."""
    times = Counter(dump.rank for dump in dumps if dump.flight)
    reasons: dict[str, set[int]] = {}
    believed: dict[int, FlightDump] = {}
    for rank, flight, why in dumps:
        if flight is None:
            reasons.setdefault(brief(why), set()).add(rank)
        elif times[rank] > 1:
            reasons.setdefault("several processes have a dump of it", set()).add(rank)
        elif foreign := _foreign(rank, flight, size):
            reasons.setdefault(foreign, set()).add(rank)
        else:
            believed[rank] = flight
    notes = [f"flight recorder of {ranks_text(ranks)}: {why}" for why, ranks in reasons.items()]
    return believed, notes


def _foreign(rank: int, flight: FlightDump, size: int | None) -> str:
    """Why a dump cannot be of this rank of the job; empty if it can."""
    if rank >= (MOST_RANKS if size is None else size):
        return "no job has so many ranks" if size is None else f"the job has {size} ranks"
    for group in flight.groups or ():
        members = _members(group.members or "")
        if members and size is not None and max(members) >= size:
            return f"its dump names rank {max(members)}, and the job has {size} ranks"
        if members and rank not in members:
            return f"its dump has group {brief(group.group, LONGEST_NAME)} without this rank"
    return ""


@lru_cache(maxsize=1024)
def _members(listed: str) -> frozenset[int]:
    """The ranks of a list such as `0-3,8`; none if it is not valid."""
    found: set[int] = set()
    for part in listed.split(","):
        low, _, high = part.partition("-")
        ends = (low, high or low)
        if not all(end.isascii() and end.isdigit() and len(end) < 6 for end in ends):
            return frozenset()
        found.update(range(int(ends[0]), int(ends[1]) + 1))
    return frozenset(found)


def _groups(dumps: Mapping[int, FlightDump]) -> Iterator[DumpedGroup]:
    """Each group that two dumps or more hold, by its name and members: two groups of different
    ranks may have one name."""
    found: dict[tuple[str, str], dict[int, FlightGroup]] = {}
    for rank, dump in dumps.items():
        for group in dump.groups or ():
            if group.members and group.sequence is not None:
                found.setdefault((group.group, group.members), {}).setdefault(rank, group)
    for (name, text), groups in found.items():
        members = _members(text)
        of_it = {rank: dumps[rank] for rank in members & dumps.keys()}
        if len(of_it) > 1:
            yield _group(name, members, of_it, groups)


def _group(
    name: str,
    members: frozenset[int],
    dumps: Mapping[int, FlightDump],
    groups: Mapping[int, FlightGroup],
) -> DumpedGroup:
    timed = all(dump.timed for dump in dumps.values())
    places = {rank: _place(group, timed) for rank, group in groups.items()}
    front = max(places.values())
    waits = front.level != OUTSIDE
    waiting = sorted(rank for rank, place in places.items() if place == front and waits)
    age = _age([groups[rank] for rank in waiting])
    for rank in dumps.keys() - groups.keys():
        if _would_hold(dumps[rank], age):
            places[rank] = GroupPlace(0, OUTSIDE)
    return DumpedGroup(
        name=name,
        groups=groups,
        places=places,
        front=front,
        waiting=tuple(waiting),
        age_s=age,
        behind=frozenset(rank for rank, place in places.items() if place < front),
        unknown=members - places.keys(),
    )


def _age(groups: Iterable[FlightGroup]) -> float | None:
    """How long ago most of them were entered; None if one does not say it."""
    ages = [group.age_s for group in groups]
    known = [age for age in ages if age is not None]
    return median_low(known) if known and len(known) == len(ages) else None


def _would_hold(dump: FlightDump, age: float | None) -> bool:
    """Whether a dump would hold a collective that its rank entered when the others did: older ones
    are overwritten."""
    if age is None or dump.held_s is None:
        return bool(dump.whole)
    return bool(dump.whole) or dump.held_s > age


def _place(group: FlightGroup, timed: bool) -> GroupPlace:
    """`timed`: every dump says when a collective started; else none does, or some cannot."""
    sequence = group.sequence or 0
    if group.state == DONE:
        return GroupPlace(sequence + 1, OUTSIDE)
    return GroupPlace(sequence, RUNS if timed and group.state == STARTED else ENTERED)


def _late(group: DumpedGroup, dumps: Mapping[int, FlightDump], notes: list[str]) -> set[int]:
    """The ranks for which most of a group had waited when they wrote their dumps."""
    if len(group.behind) * 2 > len(group.places):
        notes.append(f"{group.waiting_text} alone entered {group.collective}: most others did not")
        return set()
    waited = {rank: _wait_seconds(group, dumps[rank]) for rank in group.behind}
    early = sorted(rank for rank, seconds in waited.items() if seconds < WAITED_S)
    if early:
        notes.append(
            f"when {ranks_text(early)} wrote a dump, no other is known to "
            f"have waited for {WAITED_S:.0f} s in {group.collective}"
        )
    return set(group.behind - set(early))


def _wait_seconds(group: DumpedGroup, dump: FlightDump) -> float:
    """For how long most had waited when this dump was written, as far as the dumps say it."""
    return 0.0 if None in (group.age_s, dump.age_s) else (group.age_s or 0) - (dump.age_s or 0)


def _behind_text(group: DumpedGroup, rank: int, dump: FlightDump, front: str) -> str:
    """`front`: the collective in which the others wait, and who they are."""
    place = group.places[rank]
    if place.sequence == group.front.sequence and place.level == ENTERED:
        has = "has scheduled, but its GPU has not started,"
    elif place.level != OUTSIDE:
        has = f"is still in {collective_text(group.groups[rank])}, and has not entered"
    else:
        has = "has not entered"
    return f"{has} {front} (for {elapsed(_wait_seconds(group, dump))} when it wrote its dump)"


def _mismatch(group: DumpedGroup) -> str:
    """Different collectives of one sequence number, in words; empty if there are none."""
    called: dict[int, dict[tuple[str, str], set[int]]] = {}
    for rank, entry in group.groups.items():
        if entry.sequence is not None and entry.state != DONE:
            kind = _kind(entry.collective)
            sizes = (entry.sizes or "") if kind in EQUAL_SIZES else ""
            called.setdefault(entry.sequence, {}).setdefault((kind, sizes), set()).add(rank)
    for rank, entry in group.groups.items():
        if entry.completed in called and entry.completed_as:
            others = called[entry.completed]
            kind = _kind(entry.completed_as)
            if kind not in {other for other, _ in others}:
                others.setdefault((kind, ""), set()).add(rank)
    odd = [number for number, by_kind in called.items() if len(by_kind) > 1]
    return _kinds_text(group.name, min(odd), called[min(odd)]) if odd else ""


def _kind(name: str | None) -> str:
    """`all_reduce` of `nccl:all_reduce`."""
    return (name or "?").rpartition(":")[2]


def _kinds_text(name: str, number: int, by_kind: Mapping[tuple[str, str], Collection[int]]) -> str:
    """`collective 118 of group 0 is all_gather on rank 1, and all_reduce of 16 on ranks 0,2-3`."""
    texts = [
        f"{brief(kind, LONGEST_NAME)}{f' of {plain(sizes)}' if sizes else ''} on "
        f"{ranks_text(ranks)}"
        for (kind, sizes), ranks in sorted(
            by_kind.items(), key=lambda kind_ranks: min(kind_ranks[1])
        )
    ]
    return f"collective {number} of group {brief(name, LONGEST_NAME)} is {', and '.join(texts)}"
