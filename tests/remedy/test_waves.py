"""When which node may begin."""

import pytest

from nodevet.remedy.result import HostResult, Outcome
from nodevet.remedy.waves import Limits, Standing, in_canary, room, share, stopped


def ended(standing: Standing, *outcomes: Outcome) -> Standing:
    for outcome in outcomes:
        standing = standing.began().over(HostResult(host="n", outcome=outcome))
    return standing


def test_only_the_canary_begins_until_it_is_proven() -> None:
    limits, standing = Limits(canary=2, batch=5), Standing()
    assert room(limits, standing) == 2
    standing = standing.began().began()
    assert room(limits, standing) == 0
    standing = standing.over(HostResult(host="n", outcome=Outcome.DONE))
    assert in_canary(limits, standing) and room(limits, standing) == 0
    standing = standing.over(HostResult(host="n", outcome=Outcome.PERSISTS))
    assert not in_canary(limits, standing) and room(limits, standing) == 5


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.HALF, Outcome.DOUBT])
def test_a_canary_that_fails_stops_the_run_whatever_the_budget(outcome: Outcome) -> None:
    limits = Limits(canary=2, max_fail=100)
    standing = ended(Standing(), Outcome.DONE, outcome)
    assert stopped(limits, standing) == "the canary failed" and room(limits, standing) == 0


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.RIGHT])
def test_what_proves_nothing_is_no_canary(outcome: Outcome) -> None:
    limits = Limits(canary=1, batch=9)
    assert room(limits, ended(Standing(), outcome)) == 1


def test_the_window_slides_and_the_budget_stops() -> None:
    limits = Limits(canary=0, batch=3, max_fail=1)
    standing = Standing().began().began()
    assert room(limits, standing) == 1
    standing = ended(standing, Outcome.FAILED)
    assert room(limits, standing) == 1 and not stopped(limits, standing)
    standing = ended(standing, Outcome.FAILED)
    assert room(limits, standing) == 0
    assert stopped(limits, standing) == "2 nodes failed, and 1 may"


def test_refused_nodes_do_not_count_as_failed() -> None:
    standing = ended(Standing(), Outcome.DONE, *[Outcome.REFUSED] * 9)
    assert room(Limits(batch=4), standing) == 4


@pytest.mark.parametrize(
    ("text", "total", "nodes"),
    [("4", 9, 4), ("10%", 32, 3), ("10%", 5, 0), ("0", 5, 0), ("100%", 7, 7), (" 5% ", 100, 5)],
)
def test_a_number_or_a_share(text: str, total: int, nodes: int) -> None:
    assert share(text, total) == nodes


def test_a_share_is_at_least() -> None:
    assert share("10%", 5, least=1) == 1


@pytest.mark.parametrize("text", ["", "-1", "x", "101%", "1.5", "%", "٣", "10 %", "99999999"])
def test_neither(text: str) -> None:
    with pytest.raises(ValueError, match="neither a number"):
        share(text, 10)
