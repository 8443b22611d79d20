"""Idle states by kind, with the CPUs that have them and those that may enter them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import cpuidle

Check = Callable[..., Any]
Capture = Callable[[str], str]
TIGER = "copyleft/sysfs/util-linux/x86_64-64cpu-linux6.2.tar.gz"


def write(root: Path, cpu: int, number: int, name: str, latency: int, disable: str | None) -> None:
    place = root / f"sys/devices/system/cpu/cpu{cpu}/cpuidle/state{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "name").write_text(f"{name}\n")
    (place / "latency").write_text(f"{latency}\n")
    if disable is not None:
        (place / "disable").write_text(f"{disable}\n")


def test_states_are_folded_by_kind(tmp_path: Path, check: Check) -> None:
    for cpu in range(4):
        write(tmp_path, cpu, 0, "POLL", 0, "0")
        write(tmp_path, cpu, 1, "C6", 170 if cpu < 2 else 220, "1" if cpu == 1 else "0")
    (tmp_path / "sys/devices/system/cpu/cpu4").mkdir()  # without idle states
    folder = tmp_path / "sys/devices/system/cpu/cpuidle"
    folder.mkdir()
    (folder / "current_driver").write_text("intel_idle\n")
    (folder / "current_governor_ro").write_text("menu\n")
    found = check("cpuidle", cpuidle.collect(str(tmp_path.resolve()), {}))
    assert (found.driver, found.governor, found.count) == ("intel_idle", "menu", 3)
    assert [(s.name, s.latency_us, s.cpus, s.enabled_cpus) for s in found.states] == [
        ("POLL", 0, "0-3", "0-3"),
        ("C6", 170, "0-1", "0"),
        ("C6", 220, "2-3", "2-3"),
    ]
    assert found.why("latency_limit_us") == "ENOENT"


def test_an_unreadable_idle_state_makes_the_list_unknown(tmp_path: Path, check: Check) -> None:
    write(tmp_path, 0, 0, "C1", 2, None)
    found = check("cpuidle", cpuidle.collect(str(tmp_path.resolve()), {}))
    assert (found.states, found.why("states"), found.why("count")) == (None, "ENOENT", "ENOENT")


def test_a_latency_limit_that_is_not_a_device_is_an_error(tmp_path: Path, check: Check) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/cpu_dma_latency").write_bytes(b"\2\0\0\0")
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    found = check("cpuidle", cpuidle.collect(str(tmp_path.resolve()), {}))
    assert (found.why("latency_limit_us"), found.states) == ("not a device", ())


def test_the_limit_of_this_machine_is_read() -> None:
    if os.access("/dev/cpu_dma_latency", os.R_OK):
        assert 0 <= cpuidle.latency_limit("/") <= 2_000_000_000
    else:
        with pytest.raises(OSError, match="cpu_dma_latency"):
            cpuidle.latency_limit("/")


def test_a_captured_machine(capture: Capture, check: Check) -> None:
    found = check("cpuidle", cpuidle.collect(capture(TIGER), {}))
    assert (found.driver, found.governor) == ("intel_idle", "menu")
    assert [(state.name, state.cpus, state.enabled_cpus) for state in found.states] == [
        ("POLL", "0-7", "0-7"),
        ("C1_ACPI", "0-7", "0-7"),
        ("C2_ACPI", "0-7", "0-7"),
        ("C3_ACPI", "0-7", "0-7"),
    ]
