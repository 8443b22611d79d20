"""When which node may begin."""

import pytest

from nodevet.fix.rollout.limits import (
    Limits,
    RolloutProgress,
    in_canary,
    limits,
    node_count,
    room,
    stop_reason,
)
from nodevet.fixing.result import HostResult, Outcome


def ended(progress: RolloutProgress, *outcomes: Outcome) -> RolloutProgress:
    for outcome in outcomes:
        progress = progress.with_host_begun().with_host_ended(
            HostResult(host="n", outcome=outcome), Limits()
        )
    return progress


def test_only_the_canary_begins_until_it_is_proven() -> None:
    limits, progress = Limits(canary=2, batch=5), RolloutProgress()
    assert room(limits, progress) == 2
    progress = progress.with_host_begun().with_host_begun()
    assert room(limits, progress) == 0
    progress = progress.with_host_ended(HostResult(host="n", outcome=Outcome.CHANGED), limits)
    assert in_canary(limits, progress) and room(limits, progress) == 0
    progress = progress.with_host_ended(
        HostResult(host="n", outcome=Outcome.VERIFIED_AFTER_REBOOT), limits
    )
    assert not in_canary(limits, progress) and room(limits, progress) == 5


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ROLLBACK_FAILED, Outcome.UNKNOWN])
def test_a_canary_that_fails_stops_the_run_whatever_the_budget(outcome: Outcome) -> None:
    limits = Limits(canary=2, max_fail=100)
    progress = ended(RolloutProgress(), Outcome.CHANGED, outcome)
    assert stop_reason(limits, progress) == "the canary failed" and room(limits, progress) == 0


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNCHANGED])
def test_a_host_that_proves_nothing_is_not_a_canary(outcome: Outcome) -> None:
    limits = Limits(canary=1, batch=9)
    assert room(limits, ended(RolloutProgress(), outcome)) == 1


def test_a_failed_node_frees_its_place_until_the_failure_budget_is_spent() -> None:
    limits = Limits(canary=0, batch=3, max_fail=1)
    progress = RolloutProgress().with_host_begun().with_host_begun()
    assert room(limits, progress) == 1
    progress = ended(progress, Outcome.FAILED)
    assert room(limits, progress) == 1 and not stop_reason(limits, progress)
    progress = ended(progress, Outcome.FAILED)
    assert room(limits, progress) == 0
    assert stop_reason(limits, progress) == "2 nodes failed, but only 1 may"


def test_refused_nodes_do_not_count_as_failed() -> None:
    progress = ended(RolloutProgress(), Outcome.CHANGED, *[Outcome.REFUSED] * 9)
    assert room(Limits(batch=4), progress) == 4


@pytest.mark.parametrize(
    ("text", "total", "nodes"),
    [("4", 9, 4), ("10%", 32, 3), ("10%", 5, 0), ("0", 5, 0), ("100%", 7, 7), (" 5% ", 100, 5)],
)
def test_a_number_or_a_share(text: str, total: int, nodes: int) -> None:
    assert node_count(text, total) == nodes


@pytest.mark.parametrize(("text", "nodes"), [("5%", 1), ("10%", 2), ("100%", 12), ("0%", 0)])
def test_d11_a_share_of_few_nodes_is_at_least_one_canary(text: str, nodes: int) -> None:
    """Twelve nodes: 5% of them is one, not none; none must be written as 0."""
    assert limits(12, canary=text, batch="10", max_fail="0").canary == nodes
    assert limits(12, canary="0", batch="10", max_fail="0").canary == 0


def test_d11_max_fail_is_rounded_down_and_a_batch_is_at_least_one_node() -> None:
    found = limits(12, canary="1", batch="5%", max_fail="10%")
    assert (found.batch, found.max_fail) == (1, 1)
    assert limits(9, canary="1", batch="10", max_fail="10%").max_fail == 0


@pytest.mark.parametrize("text", ["0", "0%", "00", " 0 "])
def test_r15_a_batch_of_no_nodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--batch 0+%?: no node would ever start"):
        limits(12, canary="1", batch=text, max_fail="0")


@pytest.mark.parametrize("text", ["", "-1", "x", "101%", "1.5", "%", "٣", "10 %", "99999999"])
def test_a_text_that_is_neither_a_number_nor_a_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a number"):
        node_count(text, 10)
