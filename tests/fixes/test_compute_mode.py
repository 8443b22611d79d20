"""Compute modes: which GPUs must be free, and what no driver has."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import RunCommand

NONE = {
    "pci_device": "10de:1eb8",  # another model: those of one model have the same features
    "compute_mode": None,
    "errors": {"compute_mode": "NVML_ERROR_NOT_SUPPORTED"},
}


def test_only_gpus_in_the_wrong_mode_must_be_idle(plan, h100, uuid):
    gpus = h100({}, {"compute_mode": "PROHIBITED"}, {"compute_mode": "EXCLUSIVE_PROCESS"})
    (change,) = plan("compute_mode", "DEFAULT", {"gpu": gpus})
    assert (change.risk, change.gpus) == (Risk.IDLE, (uuid(1), uuid(2)))
    assert change.expected == "DEFAULT"
    assert change.actual == {"GPU 1": "PROHIBITED", "GPU 2": "EXCLUSIVE_PROCESS"}
    assert change.actions[0].content.count(" -c DEFAULT ||") == 3
    assert change.actions[2:] == tuple(
        RunCommand(words=("nvidia-smi", "-i", uuid(index), "-c", "DEFAULT")) for index in (1, 2)
    )
    assert [resource.name for resource in change.resources[2:]] == [
        f"{uuid(1)}:compute_mode",
        f"{uuid(2)}:compute_mode",
    ]


def test_exclusive_thread_mode_is_refused(plan, h100):
    with pytest.raises(FixError, match="use EXCLUSIVE_PROCESS"):
        plan("compute_mode", "EXCLUSIVE_THREAD", {"gpu": h100({})})


def test_a_gpu_without_modes(plan, h100, uuid):
    with pytest.raises(FixError, match="GPU 0: it has no compute modes"):
        plan("compute_mode", "EXCLUSIVE_PROCESS", {"gpu": h100(NONE)})
    (change,) = plan("compute_mode", "EXCLUSIVE_PROCESS", {"gpu": h100({}, NONE)})
    assert change.subjects == ("GPU 0",)
    assert "GPU 1: it has no compute modes" in change.note
    assert uuid(1) not in change.actions[0].content


def test_persistence_mode_off_is_reported(plan, h100):
    gpu = {"compute_mode": "PROHIBITED", "persistence_mode": None}
    (change,) = plan("compute_mode", "DEFAULT", {"gpu": h100(gpu)})
    assert (
        "persistence mode was not on (GPU 0): without it the driver forgets the compute mode"
        in change.note
    )
