"""Application clocks, which are set in pairs, and locks."""

import pytest

from nodevet.fixing.model import FixError, Risk
from nodevet.resource import RunCommand

SLOW = {"app_clock_graphics_mhz": 1200}
LOCKED = {
    "locked_clock_graphics_min_mhz": 1200,
    "locked_clock_graphics_max_mhz": 1980,
    "locked_clock_memory_min_mhz": 2619,
    "locked_clock_memory_max_mhz": 2619,
}
GONE = {
    "pci_device": "10de:1eb8",  # another model: those of one model have the same features
    "app_clock_graphics_mhz": None,
    "app_clock_memory_mhz": None,
    "errors": {
        "app_clock_graphics_mhz": "NVML_ERROR_DEPRECATED",
        "app_clock_memory_mhz": "NVML_ERROR_DEPRECATED",
    },
}


def test_both_clocks(plan, h100, uuid):
    params = {"graphics": "max", "memory": "default"}
    (change,) = plan("gpu_clocks", params, {"gpu": h100({}, SLOW)})
    assert (change.expected, change.actual, change.unit) == (
        {"graphics": 1980},
        {"graphics": 1200},
        "MHz",
    )
    assert change.risk is Risk.LIVE
    assert change.actions[0].content.count(" -ac 2619,1980 ||") == 2
    assert change.actions[2:] == (
        RunCommand(words=("nvidia-smi", "-i", uuid(1), "-ac", "2619,1980")),
    )
    assert [resource.name for resource in change.resources[2:]] == [
        f"{uuid(1)}:app_clock_memory_mhz",
        f"{uuid(1)}:app_clock_graphics_mhz",
    ]


def test_an_unspecified_clock_is_kept_now_and_set_to_its_default_at_boot(plan, h100):
    gpu = SLOW | {"app_clock_memory_mhz": 1593}
    (change,) = plan("gpu_clocks", {"graphics": 1500}, {"gpu": h100(gpu)})
    assert " -ac 2619,1500 ||" in change.actions[0].content
    assert change.actions[2].words[-2:] == ("-ac", "1593,1500")


def test_clock_locks_are_set_if_the_driver_reports_them(plan, h100, uuid):
    params = {"locked_graphics": "max", "locked_memory": 2619}
    (change,) = plan("gpu_clocks", params, {"gpu": h100(LOCKED, LOCKED)})
    unit = change.actions[0].content
    assert unit.count(" -lgc 1980,1980 ||") == unit.count(" -lmc 2619,2619 ||") == 2
    assert unit.index(uuid(0)) < unit.index(uuid(1))
    assert [action.words[3] for action in change.actions[2:]] == ["-lgc", "-lmc"] * 2
    assert {resource.name.partition(":")[2] for resource in change.resources[2:]} == set(LOCKED)


@pytest.mark.parametrize(
    ("params", "gpu", "told"),
    [
        ({"graphics": "max", "locked_graphics": 1500}, {}, "locked_clock_graphics_min_mhz"),
        ({"graphics": 1500}, {"app_clock_memory_mhz": None}, "app_clock_memory_mhz"),
        ({"graphics": 1500}, {"app_clock_memory_default_mhz": None}, "app_clock_memory_default"),
        ({"graphics": 1500, "memory": "max"}, {"max_clock_memory_mhz": 0}, "NVML says 0"),
    ],
)
def test_an_unknown_clock_is_refused(plan, h100, params, gpu, told):
    with pytest.raises(FixError) as refused:
        plan("gpu_clocks", params, {"gpu": h100(SLOW | gpu)})
    assert f"GPU 0: {told}" in str(refused.value) or told in str(refused.value)


def test_a_gpu_without_application_clocks_is_omitted(plan, h100, uuid):
    params = {"graphics": "default", "memory": "default"}
    (change,) = plan("gpu_clocks", params, {"gpu": h100(SLOW, GONE)})
    assert uuid(1) not in change.actions[0].content
