"""Which rank is behind by dumps of the flight recorder, on made-up dumps."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from nodevet.diagnose.collectives import DumpedRanks, RankDump, dumped_ranks
from nodevet.evidence.process_activity import FlightDump, FlightGroup


def pending(number: int, state: str = "scheduled", age: float | None = 90.0, **more: Any) -> Any:
    """A group that waits in a collective, which was entered so many seconds ago."""
    told = {"group": "0", "members": "0-3", "collective": "nccl:all_reduce", "sizes": "1024x8"}
    told |= {"completed": number - 1, "completed_as": "nccl:all_reduce"}
    return FlightGroup(**{**told, "sequence": number, "state": state, "age_s": age, **more})


def done(number: int, **more: Any) -> Any:
    """A group whose last collective is completed."""
    return pending(number, "completed", completed=number, **more)


def dump(rank: int, *groups: FlightGroup, age: float = 20.0, **more: Any) -> RankDump:
    told = {"version": "2.4", "age_s": age, "whole": False, "held_s": 600.0, "timed": False}
    return RankDump(rank, FlightDump(**{**told, "groups": groups, **more}))


def said(*dumps: RankDump, size: int | None = 4) -> DumpedRanks:
    return dumped_ranks(dumps, size)


def others(*ranks: int, group: FlightGroup | None = None) -> list[RankDump]:
    return [dump(rank, group or pending(118)) for rank in ranks]


def test_the_rank_that_never_entered_what_the_others_entered_is_behind() -> None:
    found = said(*others(0, 2, 3), dump(1, done(117)))
    assert found.behind == {
        1: "has not entered nccl:all_reduce 118 of 1024x8 in group 0, in which ranks 0,2-3 wait "
        "(for 1 min 10 s when it wrote its dump)"
    }
    assert found.waiting == {0, 2, 3} and not found.doubts and not found.notes


def test_a_rank_that_is_still_in_an_earlier_collective_is_behind() -> None:
    found = said(*others(0, 2, 3), dump(1, pending(117)))
    assert found.behind[1].startswith(
        "is still in nccl:all_reduce 117 of 1024x8 in group 0, and has not entered nccl:all_reduce "
    )


def test_a_rank_whose_gpu_has_not_started_is_behind_if_the_dumps_say_when_one_starts() -> None:
    started = [dump(rank, pending(118, "started"), timed=True) for rank in (0, 2, 3)]
    found = said(*started, dump(1, pending(118), timed=True))
    assert found.behind[1].startswith("has scheduled, but its GPU has not started, nccl:all_reduce")
    untimed = said(*started, dump(1, pending(118)))
    assert not untimed.behind and untimed.together == "nccl:all_reduce 118 of 1024x8 in group 0"


def test_a_rank_without_the_group_never_entered_it_if_its_dump_goes_far_enough_back() -> None:
    for more in ({"whole": True, "held_s": None}, {"held_s": 91.0}):
        assert said(*others(0, 2, 3), dump(1, **more)).behind[1].startswith("has not entered")
    for more in ({"held_s": 89.0}, {"held_s": None}):
        found = said(*others(0, 2, 3), dump(1, **more))
        assert not found.behind and not found.together


def test_a_rank_without_a_dump_may_be_behind_as_well() -> None:
    found = said(*others(0, 2), dump(1, done(117)), RankDump(3, None, "it has written no dump"))
    assert set(found.behind) == {1}
    assert found.doubts == ("no dump shows how far rank 3 got",)
    assert found.notes == ("flight recorder of rank 3: it has written no dump",)


def test_without_a_dump_no_rank_is_behind() -> None:
    assert said(RankDump(0, None, "it has written no dump")) == DumpedRanks()
    assert said() == DumpedRanks()


@pytest.mark.parametrize(
    ("late", "waits"),
    [
        (dump(1, done(117), age=81.0), pending(118)),  # 9 s after most had entered
        (dump(1, done(117), age=400.0), pending(118)),  # before they had
        (dump(1, done(117)), pending(118, age=25.0)),  # ranks that work are this far apart
        (dump(1, done(117)), pending(118, age=None)),
    ],
)
def test_a_rank_that_others_waited_for_only_briefly_is_not_behind(late: Any, waits: Any) -> None:
    found = said(*others(0, 2, 3, group=waits), late)
    assert not found.behind and "no other is known to have waited for 10 s" in found.notes[0]


def test_an_older_dump_of_a_rank_that_is_ahead_is_still_right() -> None:
    ahead = [dump(rank, pending(118, age=990.0), age=500.0) for rank in (0, 2, 3)]
    found = said(*ahead, dump(1, done(117)))
    assert set(found.behind) == {1}
    assert found.doubts == ("the dumps were written 8 min apart",)


def test_old_dumps_are_less_certain() -> None:
    old = [dump(rank, pending(118, age=8000.0), age=7200.0) for rank in (0, 2, 3)]
    found = said(*old, dump(1, done(117), age=7200.0))
    assert set(found.behind) == {1} and found.age_s == 7200.0
    assert found.doubts == ("a dump is 2 h old and does not show what the ranks did since",)


def test_one_rank_that_is_ahead_of_most_does_not_make_them_late() -> None:
    found = said(dump(0, pending(118)), *others(1, 2, 3, group=done(117)))
    assert not found.behind
    assert found.notes == (
        "rank 0 alone entered nccl:all_reduce 118 of 1024x8 in group 0: most others did not",
    )


def test_a_rank_that_waits_in_another_group_is_not_behind() -> None:
    """Ranks 0-1 wait for 2 and 3 in group 0; 2 waits for 3 in group 1."""
    pair = {"group": "1", "members": "2-3", "collective": "nccl:broadcast"}
    chain = [
        *others(0, 1),
        dump(2, done(117), pending(9, age=300.0, **pair)),
        dump(3, done(117), done(8, **pair)),
    ]
    found = said(*chain)
    assert set(found.behind) == {3}
    assert "nccl:broadcast 9 of 1024x8 in group 1, in which rank 2 waits" in found.behind[3]


def test_ranks_that_wait_for_one_another_are_reported_as_a_mismatch() -> None:
    pair = {"group": "1", "members": "0-1"}
    found = said(
        dump(0, pending(118, members="0-1"), done(8, **pair)),
        dump(1, done(117, members="0-1"), pending(9, **pair)),
        size=2,
    )
    assert not found.behind
    assert found.mismatch == "ranks 0-1 wait for one another, each in another process group"


def test_two_groups_of_one_name_are_not_compared() -> None:
    found = said(
        *others(0, 1, group=pending(118, members="0-1")),
        *others(2, 3, group=done(7, members="2-3")),
    )
    assert not found.behind and not found.mismatch


def test_a_group_whose_ranks_are_not_known_is_not_compared() -> None:
    found = said(*others(0, 2, 3, group=pending(118, members=None)), dump(1, done(117, members="")))
    assert not found.behind and not found.mismatch and not found.waiting


GATHERS = {"collective": "nccl:all_gather", "sizes": "16"}


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (
            pending(118, **GATHERS),
            "collective 118 of group 0 is all_reduce of 1024x8 on ranks 0,2-3, and all_gather on "
            "rank 1",
        ),
        (
            pending(118, sizes="16"),
            "collective 118 of group 0 is all_reduce of 1024x8 on ranks 0,2-3, and all_reduce of "
            "16 on rank 1",
        ),
        (
            pending(119, completed_as="nccl:broadcast"),
            "collective 118 of group 0 is all_reduce of 1024x8 on ranks 0,2-3, and broadcast on "
            "rank 1",
        ),
    ],
)
def test_different_collectives_of_one_number_are_a_mismatch(odd: Any, text: str) -> None:
    found = said(*others(0, 2, 3), dump(1, odd))
    assert found.mismatch == text and not found.behind


def test_sizes_that_may_differ_between_ranks_are_not_a_mismatch() -> None:
    apart = [dump(rank, pending(118, **{**GATHERS, "sizes": str(rank)})) for rank in range(4)]
    found = said(*apart)
    assert not found.mismatch and found.together.startswith("nccl:all_gather 118")


HOSTILE: Mapping[str, tuple[Iterable[RankDump], str]] = {
    "two dumps for one rank": (
        [dump(1, done(117)), dump(1, pending(118))],
        "flight recorder of rank 1: several processes have a dump of it",
    ),
    "a rank that the job does not have": (
        [dump(7, done(117, members="0-7"))],
        "flight recorder of rank 7: the job has 4 ranks",
    ),
    "a group of a larger job": (
        [dump(1, done(117, members="0-63"))],
        "flight recorder of rank 1: its dump names rank 63, and the job has 4 ranks",
    ),
    "a group without the rank itself": (
        [dump(1, done(117, members="0,2-3"))],
        "flight recorder of rank 1: its dump has group 0 without this rank",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_dump_that_cannot_belong_to_this_job_is_ignored(name: str) -> None:
    dumps, why = HOSTILE[name]
    found = said(*others(0, 2, 3), *dumps)
    assert not found.behind and why in found.notes


def test_texts_of_a_dump_are_bounded_and_printable() -> None:
    ugly = "\x1b[2J\n" * 999
    waits = pending(118, collective=ugly, sizes=ugly[:100], group=ugly)
    found = said(*others(0, 2, 3, group=waits), dump(1, done(117, group=ugly)))
    assert found.behind[1].isprintable() and len(found.behind[1]) < 700


def test_ten_thousand_ranks_are_judged_in_seconds() -> None:
    everyone = "0-9999"
    front = pending(118, members=everyone)
    late = done(117, members=everyone)
    dumps = [dump(rank, late if rank < 4000 else front) for rank in range(10_000)]
    began = time.process_time()
    assert len(dumped_ranks(dumps, 10_000).behind) == 4000
    assert time.process_time() - began < 5.0
