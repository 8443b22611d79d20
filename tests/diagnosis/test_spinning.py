"""A GPU that is 100 % busy at a quarter of its power may only wait in a collective."""

import pytest

from nodevet.diagnose.model import Cause, Confidence
from tests.diagnosis.samples import LOOKS, exit_code, first_gpu, gpu, sections, without

SPIN = gpu(100, power_mw=[190000] * LOOKS, memory_utilization_percent=[1] * LOOKS)
HEALTHY_SERVER = gpu(  # sglang #10489: a stage of a pipeline spins in recv, 150 W of 350 W
    100,
    name="RTX 3090",
    power_limit_mw=350000,
    power_mw=[150000] * LOOKS,
    memory_utilization_percent=[0] * LOOKS,
)


@pytest.mark.parametrize("spinning", [SPIN, HEALTHY_SERVER])
def test_a_gpu_that_may_only_poll_is_busy_or_spinning_and_exits_3(
    spinning: dict[str, object],
) -> None:
    found = first_gpu(sections([spinning]))
    assert found.causes == (Cause.SPINNING,), found.sentence
    assert found.confidence is not Confidence.HIGH
    assert "a collective that waits for another rank looks like this" in found.sentence
    assert exit_code(found) == 3
    assert found.next_step.startswith("watch all ranks of its job at the same moment: ")


@pytest.mark.parametrize("field", ["power_mw", "power_limit_mw", "memory_utilization_percent"])
def test_a_gpu_without_power_or_memory_readings_is_not_gpu_bound(field: str) -> None:
    found = first_gpu(without(sections([SPIN]), ("gpu_activity", "gpus", field)))
    assert Cause.GPU not in found.causes
    assert found.confidence is Confidence.LOW
    assert exit_code(found) != 0


def test_either_power_or_memory_activity_shows_that_a_gpu_works() -> None:
    decoding = gpu(100, power_mw=[190000] * LOOKS, memory_utilization_percent=[80] * LOOKS)
    in_cache = gpu(100, power_mw=[600000] * LOOKS, memory_utilization_percent=[1] * LOOKS)
    for working in (decoding, in_cache):
        assert first_gpu(sections([working])).causes == (Cause.GPU,)
    by_power = without(sections([in_cache]), ("gpu_activity", "gpus", "memory_utilization_percent"))
    assert first_gpu(by_power).causes == (Cause.GPU,)


def test_a_throttled_gpu_with_low_power_is_reported_as_throttled_first() -> None:
    slowed = {**SPIN, "event_reasons": [0x40] * LOOKS, "clock_sm_mhz": [600] * LOOKS}
    found = first_gpu(sections([slowed]))
    assert found.causes == (Cause.THROTTLED,)
    assert any("busy or spinning too, which comes with throttled" in line for line in found.also)


def test_a_polling_gpu_with_a_lowered_power_limit_is_still_spinning() -> None:
    polls = {**SPIN, "power_limit_mw": 350000}
    assert first_gpu(sections([polls])).causes == (Cause.SPINNING,)
    works = gpu(100, power_mw=[345000] * LOOKS, power_limit_mw=350000)
    assert first_gpu(sections([works])).causes == (Cause.GPU,)
