"""The age of an entry of a log whose time is wrong by years, over IPMI and Redfish."""

from datetime import datetime, timezone

import pytest

from nodevet.bmc.ages import least_ages_of_log
from nodevet.bmc.ipmi import events

NOW = 1_796_000_000  # 2026-11-29
ROW = "{},{},Power Supply PSU1,Power Supply AC lost,Asserted"


def ages(*times: str) -> list[int | None]:
    """Of entries with these times, the first one first."""
    return [event["age_s"] for event in entries(*times)]


def entries(*times: str, here: float = NOW) -> list[dict[str, int | None]]:
    rows = [ROW.format(number, time) for number, time in enumerate(times, 1)]
    return [*reversed(events("\n".join(rows), NOW, here))]


def at(seconds_ago: int) -> str:
    moment = datetime.fromtimestamp(NOW - seconds_ago, timezone.utc)
    return moment.strftime("%m/%d/%Y,%H:%M:%S")


def test_an_entry_is_no_older_than_the_one_before_it() -> None:
    """A BMC whose clock was at 2019 logged the second one."""
    assert ages(at(7200), "02/03/2019,04:05:06", at(60)) == [7200, 7200, 60]


def test_a_clock_that_was_ahead_for_a_while_makes_no_later_entry_younger() -> None:
    assert ages(at(7200), "02/03/2031,04:05:06", at(3600))[2] == 3600


def test_an_entry_without_a_time_has_no_age() -> None:
    assert ages(at(7200), "Pre-Init,0000000937", at(60)) == [7200, None, 60]


DAY = 86400
OLD = 8 * 365 * DAY  # by a clock that was years behind


def test_an_old_entry_does_not_make_a_following_entry_with_a_wrong_time_old() -> None:
    """Nothing else was logged for a month, and the second one may be a minute old."""
    _, second = entries(at(30 * DAY), "02/03/2019,04:05:06")
    assert (second["age_s"], second["least_s"]) == (30 * DAY, 0)
    _, second, _ = entries(at(30 * DAY), "02/03/2019,04:05:06", at(2 * DAY))
    assert (second["age_s"], second["least_s"]) == (30 * DAY, 2 * DAY)


def test_the_neighbours_of_an_entry_from_the_future_bound_its_age() -> None:
    (only,) = entries("02/03/2031,04:05:06")
    assert (only["age_s"], only["least_s"]) == (None, 0)
    _, second, _ = entries(at(7200), "02/03/2031,04:05:06", at(60))
    assert (second["age_s"], second["least_s"]) == (7200, 60)


def test_a_clock_that_is_ahead_now_may_have_been_right_before() -> None:
    """It jumped ahead by two days after the first entry, and logged the second one since."""
    first, second = entries(at(2 * DAY + 600), at(60), here=NOW - 2 * DAY)
    assert (first["age_s"], first["least_s"]) == (2 * DAY + 600, 600)
    assert (second["age_s"], second["least_s"]) == (60, None)
    (zone,) = entries(at(2 * DAY), here=NOW - 9 * 3600)  # a SEL has the time of some zone
    assert zone["least_s"] is None


@pytest.mark.parametrize(
    ("ids", "ages", "least"),
    [
        (["1", "2", "3"], [OLD + 9, OLD, 60], [None, None, None]),
        (["1", "2", "3"], [7200, OLD, 60], [None, 60, None]),
        (["3", "2", "1"], [OLD, 3600, 7200], [0, None, None]),  # the newest one first
        (["1", "2", "3"], [7200, 3600, OLD], [None, None, 0]),
        (["1", "2", "3", "4"], [60, 3600, 7200, OLD], [None] * 4),  # 1 is the newest one
        (["1", "2", "3", "4"], [7200, OLD, OLD - 9, OLD - 99], [None, 0, 0, 0]),
        (["9", "8", "7", "6"], [OLD, 60, 3600, 7200], [0, None, None, None]),
        (["1796000000", "1796000000_1", "1549166706"], [60, 60, OLD], [None, None, 0]),
        (["a", "b"], [7200, OLD], [None, 0]),
        (["a", "b", "c", "d"], [60, 3600, 7200, OLD], [None] * 4),
        (["d", "c", "b", "a"], [OLD, 7200, 3600, 60], [None] * 4),
        (["a", "b", "c", "d"], [9000, 7200, OLD, 60], [0, 0, 0, None]),  # in either order
        (["1", "2", "3", "4"], [7200, OLD, OLD, OLD], [None, 0, 0, 0]),
        (["1", "2"], [None, 60], [60, None]),
        (["1", "2"], [60, 61], [None, None]),  # a second apart is no contradiction
        (["1"], [-60], [None]),
        (["1"], [-OLD], [0]),
        ([], [], []),
    ],
)
def test_redfish_entries_that_contradict_their_order_may_be_new(
    ids: list[str], ages: list[int | None], least: list[int | None]
) -> None:
    assert least_ages_of_log(ids, ages) == least
