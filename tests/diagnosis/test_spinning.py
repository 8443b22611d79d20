"""A GPU that is 100 % busy at a quarter of its power may only wait in a collective."""

import pytest

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import Cause, Confidence, Diagnosis, GpuDiagnosis, HostDiagnosis
from nodevet.model import Status
from tests.diagnosis.samples import LOOKS, evidence, gpu, sections, without

SPIN = gpu(100, power_mw=[190000] * LOOKS, memory_utilization_percent=[1] * LOOKS)
HEALTHY_SERVER = gpu(  # sglang #10489: a stage of a pipeline spins in recv, 150 W of 350 W
    100,
    name="RTX 3090",
    power_limit_mw=350000,
    power_mw=[150000] * LOOKS,
    memory_utilization_percent=[0] * LOOKS,
)


def gpu_diagnosis(found: dict[str, dict[str, object]]) -> GpuDiagnosis:
    answer = diagnose(evidence(found))
    assert not isinstance(answer, str), answer
    return answer[0]


def exit_code(gpu: GpuDiagnosis) -> int:
    host = HostDiagnosis(host="n1", status=Status.VETTED, gpus=(gpu,))
    return Diagnosis(id="", nodevet="", started="", seconds=10, hosts=(host,)).exit_code


@pytest.mark.parametrize("spinning", [SPIN, HEALTHY_SERVER])
def test_a_gpu_that_may_only_poll_is_busy_or_spinning_and_no_exit_0(
    spinning: dict[str, object],
) -> None:
    found = gpu_diagnosis(sections([spinning]))
    assert found.causes == (Cause.SPINNING,), found.sentence
    assert found.confidence is not Confidence.HIGH
    assert "a collective that waits for another rank looks like this" in found.sentence
    assert exit_code(found) == 3
    assert "other ranks" in found.next_step


@pytest.mark.parametrize("field", ["power_mw", "power_limit_mw", "memory_utilization_percent"])
def test_without_power_or_memory_activity_it_is_not_called_gpu_bound(field: str) -> None:
    found = gpu_diagnosis(without(sections([SPIN]), ("gpu_activity", "gpus", field)))
    assert Cause.GPU not in found.causes
    assert found.confidence is Confidence.LOW
    assert exit_code(found) != 0


def test_power_or_memory_activity_alone_shows_that_it_works() -> None:
    decoding = gpu(100, power_mw=[190000] * LOOKS, memory_utilization_percent=[80] * LOOKS)
    in_cache = gpu(100, power_mw=[600000] * LOOKS, memory_utilization_percent=[1] * LOOKS)
    for working in (decoding, in_cache):
        assert gpu_diagnosis(sections([working])).causes == (Cause.GPU,)
    by_power = without(sections([in_cache]), ("gpu_activity", "gpus", "memory_utilization_percent"))
    assert gpu_diagnosis(by_power).causes == (Cause.GPU,)


def test_a_throttled_gpu_draws_little_because_it_is_throttled() -> None:
    slowed = {**SPIN, "event_reasons": [0x40] * LOOKS, "clock_sm_mhz": [600] * LOOKS}
    found = gpu_diagnosis(sections([slowed]))
    assert found.causes == (Cause.THROTTLED,)
    assert any("busy or spinning too, which comes with throttled" in line for line in found.also)
