"""Files that say the same of many CPUs are read once; every other file is read of each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import cpu, cpufreq

Check = Callable[..., Any]
CPUS = "sys/devices/system/cpu"
PREFERENCES = "energy_performance_available_preferences"
SAID = {
    "affected_cpus": "0",
    "scaling_governor": "performance",
    "scaling_driver": "intel_pstate",
    "energy_performance_preference": "performance",
    "scaling_available_governors": "performance powersave",
    "scaling_min_freq": "800000",
    "scaling_max_freq": "3800000",
    "cpuinfo_min_freq": "800000",
    "cpuinfo_max_freq": "3800000",
    PREFERENCES: "default performance",
}


def write(root: Path, number: int, **other: str) -> Path:
    """A policy of one CPU."""
    folder = root / CPUS / f"cpufreq/policy{number}"
    folder.mkdir(parents=True)
    for name, text in {**SAID, "affected_cpus": str(number), **other}.items():
        (folder / name).write_text(f"{text}\n")
    return folder


def policies(root: Path, check: Check) -> list[Any]:
    return list(check("cpufreq", cpufreq.collect(str(root.resolve()), {})).policies)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scaling_governor", "powersave"),
        ("energy_performance_preference", "balance_power"),
        ("scaling_min_freq", "1000000"),
        ("scaling_max_freq", "2000000"),
        ("cpuinfo_min_freq", "900000"),
        ("cpuinfo_max_freq", "3900000"),
    ],
)
def test_one_policy_that_differs_is_found(
    name: str, text: str, tmp_path: Path, check: Check
) -> None:
    for number in range(4):
        write(tmp_path, number)
    write(tmp_path, 4, **{name: text})
    assert [policy.policies for policy in policies(tmp_path, check)] == ["0-3", "4"]


@pytest.mark.parametrize("name", ["scaling_driver", "scaling_available_governors", PREFERENCES])
def test_values_that_all_policies_share_are_read_once(
    name: str, tmp_path: Path, check: Check
) -> None:
    write(tmp_path, 0)
    (write(tmp_path, 1) / name).unlink()
    assert [policy.policies for policy in policies(tmp_path, check)] == ["0-1"]


@pytest.mark.parametrize("name", ["scaling_driver", "scaling_available_governors", PREFERENCES])
def test_missing_values_of_one_policy_come_from_another(
    name: str, tmp_path: Path, check: Check
) -> None:
    (write(tmp_path, 0) / name).unlink()
    write(tmp_path, 1)
    assert [policy.policies for policy in policies(tmp_path, check)] == ["0", "1"]


@pytest.mark.parametrize(
    ("driver", "governor"), [("amd-pstate-epp", "powersave"), ("another", "performance")]
)
def test_energy_preferences_that_may_differ_are_read_for_each_policy(
    driver: str, governor: str, tmp_path: Path, check: Check
) -> None:
    write(tmp_path, 0, scaling_driver=driver)
    wide = {PREFERENCES: "default performance power"}
    write(tmp_path, 1, scaling_driver=driver, scaling_governor=governor, **wide)
    assert [len(policy.epp_available) for policy in policies(tmp_path, check)] == [2, 3]


def test_one_thread_of_each_core_is_read(tmp_path: Path, check: Check) -> None:
    folder = tmp_path / CPUS
    folder.mkdir(parents=True)
    (folder / "online").write_text("0-3\n")
    for number, core in ((0, "0,2"), (1, "1,3")):
        place = folder / f"cpu{number}/topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{number}\n")
        (place / "core_cpus_list").write_text(f"{core}\n")
    found = check("cpu", cpu.collect(str(tmp_path.resolve()), {}))
    assert (found.threads, found.cores, found.packages) == (4, 2, {"0": "0,2", "1": "1,3"})
