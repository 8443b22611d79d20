"""A GPU, or CPUs, that a plan names and that are not there afterwards: never done, told by name."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nodevet.evidence.document import decode
from nodevet.fix.model import Step
from nodevet.fix.rollout.subjects import gone_subjects_text
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Outcome, exit_code
from nodevet.model import Finding, Subject, Verdict
from nodevet.resource import Resource

World = Any
UUIDS = [f"GPU-0000000{index}-0000-0000-0000-000000000000" for index in range(2)]


@pytest.fixture
def ecc(world: Callable[..., World]) -> tuple[World, Any]:
    """A node whose two GPUs are to have ECC, and its plan: one step for both."""
    w = world(ecc_mode=True)
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    plan = w.plan()
    (step,) = plan.steps
    assert step.subjects == ("GPU 0", "GPU 1")
    return w, plan


def loses(box: Any, index: int) -> None:
    """The next reboot leaves one GPU out; those after it count one less."""
    reboot = box.reboot

    def less() -> None:
        reboot()
        box.gpus = [gpu for gpu in box.gpus if gpu["uuid"] != UUIDS[index]]

    box.reboot = less


@pytest.mark.parametrize("index", [0, 1])
def test_d8_a_gpu_that_is_gone_after_a_reboot_makes_the_outcome_unknown(
    ecc: Any, index: int
) -> None:
    """Also the first one, where the other then has its number."""
    w, plan = ecc
    loses(w.boxes["n1"], index)
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome is Outcome.UNKNOWN and exit_code([result]) == 3, result
    assert UUIDS[index] in result.why and "no longer exist" in result.why
    assert f"GPU {index} ({UUIDS[index]})" in result.why
    assert w.boxes["n1"].gpus[0]["ecc"] == [True, True], "the other one is left as it is"


def test_d8_a_resumed_run_looks_for_a_missing_gpu_until_it_is_back(ecc: Any) -> None:
    w, plan = ecc
    box = w.boxes["n1"]
    assert w.node(plan, w.journal()).outcome is Outcome.PENDING
    everything = list(box.gpus)
    loses(box, 1)
    box.reboot()
    writes = box.writes
    for _ in range(2):
        result = w.node(plan, w.journal(), resume=True)
        assert result.outcome is Outcome.UNKNOWN and UUIDS[1] in result.why, result
    assert box.writes <= writes + 2, "no action but systemctl's wait"
    box.gpus = everything
    box.gpus[1]["ecc"] = [True, True]
    result = w.node(plan, w.journal(), resume=True)
    assert result.outcome in (Outcome.CHANGED, Outcome.VERIFIED_AFTER_REBOOT), result


def test_d8_a_gpu_that_vanishes_while_its_step_is_verified_makes_it_unknown(ecc: Any) -> None:
    w, plan = ecc
    box = w.boxes["n1"]
    box.revert = lambda box: box.gpus.__delitem__(slice(1 if box.looks == 3 else 2, None))
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.UNKNOWN and UUIDS[1] in result.why, result
    assert box.writes == 2, "nothing is put back"


def test_d8_a_step_of_a_missing_resource_is_refused(ecc: Any) -> None:
    w, plan = ecc
    del w.boxes["n1"].gpus[1]
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.REFUSED and "GPU 1" in result.why
    assert not w.boxes["n1"].writes


def finding(kind: str, id: str, verdict: Verdict = Verdict.OK) -> Finding:
    return Finding(verdict=verdict, subject=Subject(kind=kind, id=id))


@pytest.mark.parametrize(
    ("subjects", "found", "missing"),
    [
        (("GPU 1",), [finding("gpu", "0"), finding("gpu", "1")], ""),
        (("GPU 1",), [finding("gpu", "0")], "GPU 1 no longer exists"),
        (("GPU 1", "GPU 2"), [finding("gpu", "0")], "GPU 1, GPU 2 no longer exist"),
        (("cpufreq 0-31",), [finding("cpufreq", "0-63")], ""),
        (("cpufreq 0-63",), [finding("cpufreq", "0-31"), finding("cpufreq", "32-63")], ""),
        (("cpufreq 0-63",), [finding("cpufreq", "0-31")], "cpufreq 0-63 no longer exists"),
        (("unit x.service",), [finding("unit", "y.service")], "unit x.service no longer exists"),
        (("process 7",), [finding("process", "8")], ""),
        (("GPU 1",), [finding("node", "", Verdict.UNKNOWN)], ""),
        (("",), [finding("gpu", "0")], ""),
    ],
)
def test_d8_missing_subjects_are_named(
    subjects: tuple[str, ...], found: list[Finding], missing: str
) -> None:
    evidence = decode(b'{"schema": 1, "probe": "0", "sections": {}}')
    step = Step(
        id="n/x/1",
        host="n",
        fix="x",
        subjects=subjects,
        expected=1,
        actual=0,
        risk=Risk.LIVE,
        actions=(),
        resources=(Resource(kind="kernel", name="/sys/x"),),
        reason="",
    )
    assert gone_subjects_text(step, found, evidence).startswith(missing)
    assert bool(gone_subjects_text(step, found, evidence)) is bool(missing)


def test_a_step_is_about_the_gpu_with_its_uuid_whatever_its_number_is_now(
    world: Callable[..., World],
) -> None:
    """GPU 0 was hidden when it was planned; its return shifts the number of the GPU that fails."""
    w = world(ecc_mode=True)
    box = w.boxes["n1"]
    box.gpus[0]["ecc"] = [True, True]
    hidden = box.gpus.pop(0)
    plan = w.plan()
    (step,) = plan.steps
    assert (step.subjects, step.subject_uuids) == (("GPU 0",), (UUIDS[1],))
    box.gpus.insert(0, hidden)
    result = w.node(plan, w.journal())
    assert result.outcome is Outcome.REFUSED and not box.writes, result
    assert "GPU 0 of the plan is GPU 1 now" in result.why


def test_a_gpu_whose_number_shifts_at_the_reboot_is_still_the_one_that_is_verified(
    world: Callable[..., World],
) -> None:
    """The number of the GPU that was changed is then that of one that fails the check."""
    w = world(ecc_mode=True)
    w.terms = msgspec.structs.replace(w.terms, drain_hook="true")
    box = w.boxes["n1"]
    hidden = box.gpus.pop(0)
    plan = w.plan()
    reboot = box.reboot

    def back() -> None:
        reboot()
        box.gpus.insert(0, hidden)

    box.reboot = back
    result = w.node(plan, w.journal(), reboot=True)
    assert result.outcome in (Outcome.CHANGED, Outcome.VERIFIED_AFTER_REBOOT), result
    assert [gpu["ecc"] for gpu in box.gpus] == [[False, False], [True, True]]
