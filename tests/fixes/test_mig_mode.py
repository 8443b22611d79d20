"""MIG: Ampere keeps the mode and waits for a reset, later GPUs need a unit."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import RunCommand
from nodevet.resource.file import WriteFile

ON = {"mig_current": True, "mig_pending": True}
AMPERE = {"gpu_architecture": "AMPERE"}
NONE = {
    "pci_device": "10de:1eb8",  # another model: those of one model have the same features
    "mig_current": None,
    "mig_pending": None,
    "errors": {"mig_current": "NVML_ERROR_NOT_SUPPORTED"},
}


def test_hopper_changes_at_once_and_needs_a_unit(plan, h100, uuid):
    (change,) = plan("mig_mode", False, {"gpu": h100({}, ON)})
    assert (change.risk, change.effective) == (Risk.DRAIN, "now")
    unit = change.actions[0]
    assert unit.content.count(" -mig 0 ||") == 2
    assert "nodevet-persistence-mode.service\n" in unit.content
    assert "nodevet-mig-mode.service" not in unit.content
    assert change.actions[2:] == (RunCommand(words=("nvidia-smi", "-i", uuid(1), "-mig", "0")),)
    assert change.resources[-1].name == f"{uuid(1)}:mig_pending"
    assert "a rollback does not restore them" in change.note


def test_ampere_needs_a_gpu_reset_and_no_unit(plan, h100, uuid):
    (change,) = plan("mig_mode", True, {"gpu": h100(AMPERE, AMPERE | ON)})
    assert (change.risk, change.effective) == (Risk.DRAIN, "reset")
    assert change.actions == (RunCommand(words=("nvidia-smi", "-i", uuid(0), "-mig", "1")),)
    assert "it creates no slices" in change.note


def test_ampere_and_hopper_gpus_of_one_node_get_separate_changes(plan, h100, uuid):
    first, second = plan("mig_mode", False, {"gpu": h100(AMPERE | ON, ON, {})})
    assert (first.subjects, first.effective) == (("GPU 0",), "reset")
    assert (second.subjects, second.effective) == (("GPU 1",), "now")
    assert not set(first.resources) & set(second.resources)
    (unit,) = (action for action in second.actions if isinstance(action, WriteFile))
    assert uuid(0) not in unit.content and uuid(2) in unit.content


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_node_with_a_gpu_of_unknown_architecture_is_refused(plan, h100, wrong):
    gpus = [{}, {}]
    gpus[wrong] = ON
    gpus[1] = gpus[1] | {"gpu_architecture": None}
    with pytest.raises(FixError, match="GPU 1: gpu_architecture: not in the evidence"):
        plan("mig_mode", False, {"gpu": h100(*gpus)})


def test_a_gpu_without_mig_support_is_refused(plan, h100):
    with pytest.raises(FixError, match="GPU 0: it does not support MIG"):
        plan("mig_mode", True, {"gpu": h100(NONE)})
