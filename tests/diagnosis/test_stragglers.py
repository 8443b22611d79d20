"""Of GPUs that do the same, the one unlike the others is named, with what it alone has."""

from typing import Any

from msgspec.structs import replace

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import Cause, HostDiagnosis, Suspect
from nodevet.diagnose.stragglers import stragglers
from nodevet.model import Finding, Status, Subject, Verdict
from tests.diagnosis.samples import LOOKS, evidence, gpu, process, sections

LIMIT = Suspect(
    finding=Finding(
        verdict=Verdict.FAIL,
        check="power_limit",
        subject=Subject(kind="gpu", id="0", uuid="GPU-7"),
        expected=700,
        actual=500,
        unit="W",
    ),
    gpu=0,
    fixable=True,
)
SLOW: dict[str, Any] = {"event_reasons": [0x40] * LOOKS, "clock_sm_mhz": [900] * LOOKS}


def host(
    label: str, busy: int = 97, suspects: tuple[Suspect, ...] = (), **rest: Any
) -> HostDiagnosis:
    found = diagnose(evidence(sections([gpu(busy, **rest)])))
    assert not isinstance(found, str)
    return HostDiagnosis(host=label, status=Status.VETTED, gpus=found, suspects=suspects)


def test_the_throttled_gpu_is_named_with_the_setting_that_only_it_has() -> None:
    others = [host(f"gpu00{n}") for n in range(1, 4)]
    (one,) = stragglers([*others, host("gpu007", 97, (LIMIT,), **SLOW)])
    assert (one.host, one.gpu) == ("gpu007", 0)
    assert one.sentence.startswith("throttled, the others are GPU-bound; SM clock")
    (told,) = one.suspects
    assert told.startswith("power_limit") and "500" in told and "700" in told
    assert told.endswith("`nodevet plan --fix power_limit`")


def test_a_failing_setting_that_most_hosts_share_is_not_a_suspect() -> None:
    others = [host(f"gpu00{n}", 97, (LIMIT,)) for n in range(1, 4)]
    (one,) = stragglers([*others, host("gpu007", 97, (LIMIT,), **SLOW)])
    assert one.suspects == ()


def test_hosts_with_the_same_cause_have_no_straggler() -> None:
    assert stragglers([host(f"gpu00{n}") for n in range(1, 5)]) == ()
    assert stragglers([host(f"gpu00{n}", **SLOW) for n in range(1, 5)]) == ()


def test_two_processes_with_the_same_command_leave_the_odd_one_unknown() -> None:
    assert stragglers([host("gpu001"), host("gpu002", **SLOW)]) == ()


def test_gpus_of_another_model_and_idle_ones_are_not_compared() -> None:
    several = [host("a"), host("b"), host("c", name="L4", **SLOW)]
    assert stragglers(several) == ()
    free = evidence(sections([gpu(0, processes=[], memory_used_b=[0] * LOOKS)], [process(gpus=[])]))
    idle = replace(several[0], host="d", gpus=diagnose(free))
    assert idle.gpus[0].cause is Cause.IDLE
    assert stragglers([*several, idle]) == ()


def test_a_gpu_with_a_lower_clock_is_late_with_the_same_work() -> None:
    others = [host(f"gpu00{n}") for n in range(1, 4)]
    (one,) = stragglers([*others, host("gpu007", clock_sm_mhz=[1500] * LOOKS)])
    assert one.host == "gpu007"
    assert "SM clock (of its maximum) 76 %, the others 96 %" in one.sentence
