"""States and profiles as text, and how the library reads them."""

import re
from collections import Counter

import pytest

from nodevet_sim.state import (
    StateError,
    check_key,
    for_each,
    of_gpu,
    profile_text,
    profiles,
    state,
    text_of,
    values,
    without_gpus,
)

NAMED = re.compile(r"NVML_ERROR_\w+|NVML returned 0: no sensor|NVML has no call that reads it")


def test_the_shipped_profiles():
    assert set(profiles()) == {
        "a100-sxm-40",
        "a100-sxm-80",
        "b200",
        "b300",
        "gb200",
        "gb300",
        "h100-sxm",
        "h200-sxm",
        "l40s",
        "rtx-4090",
        "rtx-pro-6000",
        "t4",
    }


@pytest.mark.parametrize("name", profiles())
def test_a_profile_sets_every_value(name, gpus_of):
    rows = [row for row in profile_text(name).splitlines() if row and not row.startswith("#")]
    keys = [row.partition(" =")[0] for row in rows]
    assert [key for key, times in Counter(keys).items() if times > 1] == []
    for key in keys:
        check_key(key)
    (gpu,) = gpus_of(state(name, 1)).gpus
    for record in (gpu, gpu.ecc, gpu.remapping, gpu.retired_pages, gpu.fabric):
        assert [why for why in record.errors.values() if not NAMED.fullmatch(why)] == []
        assert "NVML_ERROR_UNKNOWN" not in record.errors.values()
    if gpu.power_limit_min_mw is not None:  # NVML tells both limits or none
        assert gpu.power_limit_min_mw <= gpu.power_limit_mw <= gpu.power_limit_max_mw
    assert (gpu.event_reasons, gpu.processes) == (1, ())
    assert gpu.pcie_width <= gpu.pcie_width_max


@pytest.mark.parametrize(
    ("name", "device", "watts", "mebibytes", "clock"),
    [
        ("h100-sxm", "10de:2330", (200, 700, 700), 81559, 1980),
        ("h200-sxm", "10de:2335", (200, 700, 700), 143771, 1980),
        ("a100-sxm-80", "10de:20b2", (100, 400, 400), 81920, 1410),
        ("a100-sxm-40", "10de:20b0", (100, 400, 400), 40960, 1410),
        ("l40s", "10de:26b9", (100, 350, 350), 46068, 2520),
        ("t4", "10de:1eb8", (60, 70, 70), 15360, 1590),
        ("rtx-4090", "10de:2684", (10, 450, 600), 24564, 3120),
        ("b200", "10de:2901", (200, 1000, 1000), 183359, 1965),
        ("b300", "10de:3182", (None, 1100, None), 275040, None),
        ("gb200", "10de:2941", (200, 1200, 1200), 189471, 2062),
        ("gb300", "10de:31c2", (None, 1400, None), 284208, 2070),
        ("rtx-pro-6000", "10de:2bb5", (None, 600, None), 97887, None),
    ],
)
def test_reference_numbers(name, device, watts, mebibytes, clock, gpus_of):
    (gpu,) = gpus_of(state(name, 1)).gpus
    limits = (gpu.power_limit_min_mw, gpu.power_limit_default_mw, gpu.power_limit_max_mw)
    assert tuple(limit and limit // 1000 for limit in limits) == watts
    assert (gpu.pci_device, gpu.memory_total_b >> 20) == (device, mebibytes)
    assert gpu.max_clock_graphics_mhz == clock


def test_each_gpu_has_its_own_identifiers(gpus_of):
    found = gpus_of(state("h100-sxm", 8))
    for field in ("uuid", "serial", "bus_id", "minor_number", "module_id"):
        assert len({getattr(gpu, field) for gpu in found.gpus}) == 8, field
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found.gpus[7].uuid)
    assert {len(gpu.nvlinks) for gpu in found.gpus} == {18}
    (card,) = gpus_of(state("rtx-4090", 1)).gpus
    assert card.why("serial") == "NVML_ERROR_NOT_SUPPORTED"


def test_overrides_win_and_bus_ids_are_given(gpus_of):
    changed = {"gpu.1.pcie_width": 8, "gpu.*.persistence_mode": False, "driver_version": "1.2"}
    changed.update({"gpu.0.nvlinks.*.active": False, "gpu.*.nvlinks.3.active": 1})
    found = gpus_of(state("a100-sxm-80", 2, bus_ids=["0000:07:00.0", "0001:0a:00.0"], **changed))
    assert [gpu.bus_id for gpu in found.gpus] == ["0000:07:00.0", "0001:0a:00.0"]
    assert [gpu.pcie_width for gpu in found.gpus] == [16, 8]
    assert [gpu.persistence_mode for gpu in found.gpus] == [False, False]
    assert found.driver_version == "1.2"
    assert {link.active for link in found.gpus[0].nvlinks} == {False}  # gpu.0 before gpu.*
    assert {link.active for link in found.gpus[1].nvlinks} == {True}


@pytest.mark.parametrize(
    ("arguments", "overrides", "words"),
    [
        (("h100", 1), {}, "no profile 'h100'; choose one of: a100-sxm-40, "),
        (("t4", 1), {"gpu.0.pcie_widht": 8}, "did you mean pcie_width?"),
        (("t4", 1), {"gpu.0.ecc.volatile_corected": 8}, "did you mean ecc.volatile_corrected?"),
        (("t4", 1), {"gpu.0.nvlinks.3.activ": 1}, "did you mean active?"),
        (("t4", 1), {"driver": "550"}, "no key 'driver'"),
        (("t4", 1), {"gpu.0.name": "two\nlines"}, "not one line"),
        (("t4", 2), {"bus_ids": ["0000:01:00.0"]}, "2 GPUs need as many different bus ids"),
        (("t4", 2), {"bus_ids": ["0000:01:00.0"] * 2}, "different bus ids"),
    ],
)
def test_settings_that_the_library_lacks_are_refused(arguments, overrides, words):
    with pytest.raises(StateError, match=re.escape(words)):
        state(*arguments, **overrides)


def test_a_state_is_read_as_the_library_reads_it():
    known = values("a = 1\n# no\n\ngpu.0.name = A = B\na = 2\n")
    assert known == {"a": "2", "gpu.0.name": "A = B"}
    text = state("t4", 2)
    assert values(text_of(values(text))) == values(text)


def test_a_change_for_every_gpu_overrides_values_of_single_gpus(gpus_of):
    known = values(state("t4", 3, **{"gpu.1.persistence_mode": 1}))
    changed = for_each(known, {"gpu.*.persistence_mode": "0", "gpu.2.power_limit_mw": "60000"})
    found = gpus_of(text_of(changed))
    assert [gpu.persistence_mode for gpu in found.gpus] == [False] * 3
    assert [of_gpu(changed, gpu, "power_limit_mw") for gpu in range(3)] == ["70000"] * 2 + ["60000"]
    for key, words in (("gpu.3.lost", "no GPU 3, but 3"), ("gpu.0.losst", "did you mean lost")):
        with pytest.raises(StateError, match=re.escape(words)):
            for_each(known, {key: "1"})


def test_gpus_after_a_removed_one_move_up(gpus_of):
    known = values(state("h100-sxm", 4))
    found = gpus_of(text_of(without_gpus(known, [0, 2])))
    assert found.count == 2
    assert [gpu.uuid for gpu in found.gpus] == [known["gpu.1.uuid"], known["gpu.3.uuid"]]
    assert [gpu.minor_number for gpu in found.gpus] == [1, 3]
