"""ECC: what waits for a reboot is planned so, what is taken back is live."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import Resource, RunCommand

OFF = {"ecc_current": False, "ecc_pending": False}
SET = {"ecc_current": False, "ecc_pending": True}
TO_GO = {"ecc_current": True, "ecc_pending": False}
NONE = {
    "pci_device": "10de:1eb8",  # another model: those of one model have the same features
    "ecc_current": None,
    "ecc_pending": None,
    "errors": {"ecc_current": "NVML_ERROR_NOT_SUPPORTED"},
}


def test_a_gpu_with_ecc_off_or_only_pending_needs_a_reboot(plan, h100, uuid):
    (change,) = plan("ecc_mode", True, {"gpu": h100(OFF, {}, SET)})
    assert (change.risk, change.effective) == (Risk.REBOOT, "reboot")
    assert (change.expected, change.actual) == (True, False)
    assert change.subjects == ("GPU 0", "GPU 2")
    assert change.actions == tuple(
        RunCommand(words=("nvidia-smi", "-i", uuid(index), "-e", "1")) for index in (0, 2)
    )
    assert change.resources == tuple(
        Resource(kind="gpu", name=f"{uuid(index)}:ecc_pending") for index in (0, 2)
    )


def test_a_wrong_pending_mode_is_reverted_at_no_risk(plan, h100, uuid):
    (change,) = plan("ecc_mode", True, {"gpu": h100({}, TO_GO)})
    assert (change.risk, change.effective) == (Risk.LIVE, "now")
    assert change.actions == (RunCommand(words=("nvidia-smi", "-i", uuid(1), "-e", "1")),)


def test_ecc_off_and_a_wrong_pending_mode_are_separate_changes(plan, h100):
    first, second = plan("ecc_mode", True, {"gpu": h100(OFF, TO_GO)})
    assert (first.subjects, first.risk) == (("GPU 0",), Risk.REBOOT)
    assert (second.subjects, second.risk) == (("GPU 1",), Risk.LIVE)
    assert not set(first.resources) & set(second.resources)


def test_ecc_is_turned_off_if_the_baseline_expects_it(plan, h100):
    (change,) = plan("ecc_mode", False, {"gpu": h100({}, OFF)})
    assert change.actions[0].words[-2:] == ("-e", "0")
    assert change.subjects == ("GPU 0",)


def test_a_gpu_without_ecc(plan, h100):
    with pytest.raises(FixError, match="GPU 0: it has no ECC"):
        plan("ecc_mode", True, {"gpu": h100(NONE)})
    (change,) = plan("ecc_mode", True, {"gpu": h100(NONE, OFF)})
    assert change.note == "GPU 0: it has no ECC"
