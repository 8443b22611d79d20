"""Throttling shows in its bits and clocks however busy the GPU is; a lost GPU is called lost."""

from typing import Any

import pytest

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import Cause, Confidence, GpuDiagnosis
from nodevet.diagnose.rules import NEXT, SLOWED
from tests.diagnosis.samples import BLOCKED, LOOKS, evidence, gpu, process, sections


def gpu_diagnosis(found: dict[str, dict[str, Any]]) -> GpuDiagnosis:
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str), answer
    return answer[0]


@pytest.mark.parametrize("busy", [0, 3, 20, 45, 60, 97])
@pytest.mark.parametrize("bit", [0x8, 0x20, 0x40, 0x80])
def test_a_slowdown_is_throttled_however_busy_the_gpu_is(busy: int, bit: int) -> None:
    slowed = gpu(busy, event_reasons=[bit] * LOOKS, clock_sm_mhz=[345] * LOOKS)
    found = gpu_diagnosis(sections([slowed], [process()]))
    assert Cause.THROTTLED in found.causes, found.sentence
    assert "slowed it 100 % of the time" in found.sentence


def test_a_slowed_gpu_without_a_job_is_reported_as_throttled_and_idle() -> None:
    idle = gpu(0, event_reasons=[0x8] * LOOKS, processes=[], memory_used_b=[0] * LOOKS)
    found = gpu_diagnosis(sections([idle], []))
    assert found.causes == (Cause.THROTTLED,)
    assert any(line.startswith("looks idle too") for line in found.also)


def test_a_slowed_gpu_that_also_waits_for_storage_has_both_causes() -> None:
    slowed = gpu(20, event_reasons=[0x40] * LOOKS)
    found = gpu_diagnosis(sections([slowed], [process(threads=BLOCKED)]))
    assert set(found.causes) == {Cause.THROTTLED, Cause.STORAGE}


AT_65 = {"clock_sm_mhz": [1290] * LOOKS, "power_mw": [500000] * LOOKS}


@pytest.mark.parametrize("busy", [20, 97])
@pytest.mark.parametrize(
    ("rest", "locked", "note", "step"),
    [
        ({"event_reasons": [0x10] * LOOKS}, None, "sync boost", "look at the slowest GPU"),
        ({"event_reasons": [0x2] * LOOKS}, None, "application clocks", "-rac -i BUS_ID"),
        ({}, 1290, "locked at 1290 MHz", "-rgc -i BUS_ID; without -i this"),
    ],
)
def test_clocks_that_a_setting_holds_at_65_percent_throttle(
    busy: int, rest: dict[str, Any], locked: int | None, note: str, step: str
) -> None:
    node = sections([gpu(busy, **AT_65, **rest)])
    node["gpu"]["gpus"][0]["locked_clock_graphics_max_mhz"] = locked
    found = gpu_diagnosis(node)
    assert Cause.THROTTLED in found.causes, found.sentence
    assert "its SM clock is 65 % of its maximum" in found.sentence and note in found.sentence
    assert step in found.next_step
    assert "sync boost" not in found.next_step or note == "sync boost"


def test_low_clocks_that_nothing_explains_contradict_gpu_bound() -> None:
    found = gpu_diagnosis(sections([gpu(97, clock_sm_mhz=[1550] * LOOKS)]))
    assert (found.causes, found.confidence) == ((Cause.GPU,), Confidence.MEDIUM)
    assert "its SM clock is 78 % of its maximum, and the driver gave no reason" in found.sentence


def test_a_clock_lock_that_nvml_cannot_read_is_throttling_with_medium_confidence() -> None:
    found = gpu_diagnosis(sections([gpu(97, **AT_65)]))
    assert (found.causes, found.confidence) == ((Cause.THROTTLED,), Confidence.MEDIUM)
    assert "-rgc" in found.next_step
    idle = sections([gpu(30, **AT_65)])
    assert gpu_diagnosis(idle).cause is Cause.UNCLEAR, "its clock may follow its load"


def test_a_low_clock_of_a_seldom_busy_gpu_without_a_clock_lock_is_not_throttling() -> None:
    node = sections([gpu(20, clock_sm_mhz=[345] * LOOKS)], application=1980)
    assert gpu_diagnosis(node).cause is Cause.UNCLEAR
    node["gpu"]["gpus"][0]["locked_clock_graphics_max_mhz"] = 1290
    assert gpu_diagnosis(node).cause is Cause.UNCLEAR, "345 MHz is not the locked clock"


CALLS = ("samples", "utilization_percent", "power_mw", "clock_sm_mhz", "event_reasons", "processes")


@pytest.mark.parametrize("error", ["NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED"])
@pytest.mark.parametrize("fields", [CALLS, ("handle",)])
def test_a_gpu_that_nvml_reports_lost_is_diagnosed_as_lost(
    error: str, fields: tuple[str, ...]
) -> None:
    found = gpu_diagnosis(sections([{"index": 0, "errors": dict.fromkeys(fields, error)}]))
    assert (found.causes, found.confidence) == ((Cause.LOST,), Confidence.HIGH)
    assert error in found.sentence
    assert "reset" in found.next_step and "longer" not in found.next_step


def test_a_gpu_that_is_lost_during_the_watch_is_diagnosed_as_lost() -> None:
    """Its first looks have values, its last ones have none."""
    lost = gpu(97, errors={"utilization_percent": "NVML_ERROR_GPU_IS_LOST"})
    assert Cause.LOST in gpu_diagnosis(sections([lost])).causes


def test_a_gpu_that_the_user_may_not_read_is_not_lost() -> None:
    shut = {"index": 0, "errors": {"handle": "NVML_ERROR_NO_PERMISSION"}}
    assert gpu_diagnosis(sections([shut])).cause is Cause.UNCLEAR


@pytest.mark.parametrize(
    ("bit", "step"),
    [
        (0x20, SLOWED["thermal slowdown"]),
        (0x40, SLOWED["thermal slowdown"]),
        (0x80, "check the power supplies and the BMC's event log: the power brake slows it"),
        (0x8, NEXT[Cause.THROTTLED]),  # the hardware does not say which of them
    ],
)
def test_the_next_step_depends_on_the_slowdown_reason(bit: int, step: str) -> None:
    found = gpu_diagnosis(sections([gpu(97, event_reasons=[bit] * LOOKS)]))
    assert (found.causes, found.next_step) == ((Cause.THROTTLED,), step)


def test_a_power_limit_that_the_gpu_does_not_reach_throttles_it() -> None:
    capped = {"event_reasons": [0x4] * LOOKS, "clock_sm_mhz": [900] * LOOKS}
    found = gpu_diagnosis(sections([gpu(97, **capped)]))
    assert found.causes == (Cause.THROTTLED,)
    assert "nvidia-smi -q -d POWER" in found.next_step
    for more in ({"power_mw": [690000] * LOOKS}, {"clock_sm_mhz": [1500] * LOOKS}):
        assert gpu_diagnosis(sections([gpu(97, **{**capped, **more})])).causes == (Cause.GPU,)
