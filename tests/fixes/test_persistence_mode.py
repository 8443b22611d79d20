"""Persistence mode on and off."""

import pytest

from nodevet.fix import FixError, Risk, Run, Touch, Unit

OFF = {"persistence_mode": False}


@pytest.mark.parametrize(("want", "word", "noted"), [(True, "1", False), (False, "0", True)])
def test_on_and_off(plan, h100, uuid, want, word, noted):
    (change,) = plan(
        "persistence_mode", want, {"gpu": h100({}, {"persistence_mode": not want}, OFF)}
    )
    gpus = [1, 2] if want else [0, 1]
    assert (change.wanted, change.observed) == (want, not want)
    assert change.subjects == tuple(f"GPU {index}" for index in gpus)
    unit, enabled, *runs = change.actions
    assert unit.content.count(f" -pm {word} ||") == 3
    assert "After=nvidia-persistenced.service nvidia-fabricmanager.service\n" in unit.content
    assert enabled == Unit(name="nodevet-persistence-mode.service", enabled=True)
    assert runs == [Run(words=("nvidia-smi", "-i", uuid(index), "-pm", word)) for index in gpus]
    assert change.touches[2:] == tuple(
        Touch(kind="gpu", name=f"{uuid(index)}:persistence_mode") for index in gpus
    )
    assert change.risk is Risk.LIVE
    assert ("forgets its power limit" in change.note) is noted


def test_a_lost_gpu_refuses_the_node(plan, h100):
    gone = {"persistence_mode": None, "errors": {"handle": "NVML_ERROR_GPU_IS_LOST"}}
    with pytest.raises(FixError, match="GPU 1: NVML: NVML_ERROR_GPU_IS_LOST"):
        plan("persistence_mode", True, {"gpu": h100(OFF, gone)})
