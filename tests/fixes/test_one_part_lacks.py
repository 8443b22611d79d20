"""What a unit sets at every boot it sets on every GPU: a GPU that lacks a setting which others of
its model have is refused with its node, not left out."""

import pytest

from nodevet.fixing.model import FixError

HOPPER = {"gpu_architecture": "HOPPER"}
UNITS = ("nvidia-persistenced.service", "nodevet-persistence-mode.service")
ABSENT = {"load_state": "not-found", "active_state": "inactive", "file_state": ""}
ROWS = [
    ("compute_mode", "EXCLUSIVE_PROCESS", "compute_mode", {}),
    ("power_limit", 700, "power_limit_mw", {"power_limit_mw": 500_000}),
    ("gpu_clocks", {"graphics": "max"}, "app_clock_graphics_mhz", {"app_clock_graphics_mhz": 900}),
    ("mig_mode", True, "mig_current", HOPPER),
    ("persistence_mode", False, "persistence_mode", {}),
]


@pytest.mark.parametrize(("check", "params", "field", "fails"), ROWS, ids=[row[0] for row in ROWS])
def test_a_gpu_that_lacks_a_setting_of_its_peers_is_refused(
    plan, h100, check, params, field, fails
):
    lacks = {field: None, "errors": {field: "NVML_ERROR_NOT_SUPPORTED"}}
    services = {"units": [{"name": name, **ABSENT} for name in UNITS]}
    with pytest.raises(FixError) as refused:
        plan(check, params, {"gpu": h100(fails, lacks), "services": services})
    said = f"GPU 1: {field}: NVML_ERROR_NOT_SUPPORTED, but GPU 0 of the same model has it"
    assert str(refused.value) == f"{said}: repair this first"
