"""The two clocks in the evidence: the node's, and that of the machine that asks."""

import io
import time
from pathlib import Path

import pytest

from nodevet.evidence.host import NO_OTHER_CLOCK
from nodevet.fleet.protocol.exchange import request
from nodevet.remote.probe.collectors import host
from nodevet.remote.request import receive


def test_the_clock_is_read_when_the_request_arrives() -> None:
    before = time.time()
    wish = receive(io.BytesIO(request(nonce="n", root="/", deadline=9, asked_s=before)))
    after = time.time()
    assert before <= wish["arrived_s"] <= after
    found = host.collect("/", wish)
    assert (found["clock_s"], found["asked_s"]) == (round(wish["arrived_s"], 3), before)


def test_a_node_that_probes_itself_has_no_controller_clock() -> None:
    wish = receive(io.BytesIO(request(nonce="n", root="/", deadline=9, asked_s=None)))
    found = host.collect("/", wish)
    assert found["clock_s"] is not None
    assert (found["asked_s"], found["errors"]["asked_s"]) == (None, NO_OTHER_CLOCK)
    assert host.collect("/", {})["errors"]["asked_s"] == NO_OTHER_CLOCK


@pytest.mark.parametrize("value", ["12", -1, 0, float("nan"), float("inf"), 10**400, [], {}])
def test_an_invalid_controller_time_is_an_error(value: object) -> None:
    found = host.collect("/", {"asked_s": value})
    assert found["asked_s"] is None
    assert found["errors"]["asked_s"].startswith("the request's asked_s is not a valid time: ")


def test_the_clock_is_not_reported_for_the_tree_of_another_machine(node: Path) -> None:
    found = host.collect(str(node), {"asked_s": 1763677519.5})
    assert (found["clock_s"], found["asked_s"]) == (None, 1763677519.5)
    assert found["errors"]["clock_s"].endswith(" is of another machine")
    assert host.collect(str(node), {"whole_machine": True})["clock_s"] is not None
