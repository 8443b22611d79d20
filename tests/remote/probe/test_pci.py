"""Who is told of PCIe errors: the kernel by its ports, the firmware by APEI, or nobody."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.params import params_of
from nodevet.evidence.document import decode
from nodevet.remote.probe.collectors import pci

PORT, GPU = "0000:17:01.0", "0000:19:00.0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of one GPU below a port that tells the kernel, with counters that stay 0."""
    place = tmp_path / f"sys/devices/pci0000:17/{PORT}"
    for folder, code in ((place, "060400"), (place / GPU, "030200")):
        folder.mkdir(parents=True)
        for name, text in (("class", f"0x{code}"), ("vendor", "0x10de"), ("revision", "0xa1")):
            (folder / name).write_text(f"{text}\n")
        for name in pci.AER:
            (folder / f"aer_dev_{name}").write_text(f"TOTAL_ERR_{name.upper()} 0\n")
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    for folder in (place, place / GPU):
        (devices / folder.name).symlink_to(os.path.relpath(folder, devices))
    services = tmp_path / "sys/bus/pci_express/drivers/aer"
    services.mkdir(parents=True)
    (services / f"{PORT}:pcie002").symlink_to(os.path.relpath(place, services))
    for name in ("bind", "unbind", "uevent"):
        (services / name).write_text("")
    sources = tmp_path / "sys/bus/platform/drivers/GHES"
    sources.mkdir(parents=True)
    for name in ("bind", "unbind", "GHES.0", "GHES.1"):
        (sources / name).write_text("")
    return tmp_path.resolve()


def test_t4_the_receiver_of_error_messages_is_read(root: Path, check: Callable[..., Any]) -> None:
    found = check("pci", pci.collect(str(root), {}))
    assert (found.aer_ports, found.firmware_sources, found.errors) == ((PORT,), 2, {})
    assert [each.aer.correctable for each in found.functions] == [0, 0]
    (root / f"sys/bus/pci_express/drivers/aer/{PORT}:pcie002").unlink()
    for source in (root / "sys/bus/platform/drivers/GHES").iterdir():
        source.unlink()
    found = check("pci", pci.collect(str(root), {}))
    assert (found.aer_ports, found.firmware_sources) == ((), 0)


def test_t4_counters_that_no_driver_raises_are_not_ok(
    root: Path, check: Callable[..., Any], judged: Callable[..., Any]
) -> None:
    assert judged(root) == ["ok"]
    (root / f"sys/bus/pci_express/drivers/aer/{PORT}:pcie002").unlink()
    assert judged(root) == ["ok", "not_applicable"]  # by the log, and not of corrected ones
    for source in (root / "sys/bus/platform/drivers/GHES").iterdir():
        source.unlink()
    assert judged(root) == ["not_applicable"]


@pytest.fixture
def judged() -> Callable[[Path], list[str]]:
    """What pcie_errors says of a machine whose log is whole and silent."""

    def ask(root: Path) -> list[str]:
        sections = {
            "host": {"virtualization": "none", "uptime_s": 7200.0},
            "pci": pci.collect(str(root), {}),
            "kernel_log": {"complete": True, "events": []},
        }
        document = {
            "schema": 1,
            "probe": "0",
            "sections": {name: {"status": "ok", "data": data} for name, data in sections.items()},
        }
        check = Catalog().check("pcie_errors")
        params = params_of(check.params, {"corrected_per_hour": 960})
        found = check.judge(decode(msgspec.json.encode(document)), params)
        return [finding.verdict.value for finding in found]

    return ask


@pytest.mark.parametrize(
    ("version", "control", "expected"),
    [(2, 3, 8.0), (2, 0x45, 32.0), (2, 0, None), (1, 3, None)],
)
def test_e18_the_target_speed_of_a_port_is_read(
    root: Path, check: Callable[..., Any], version: int, control: int, expected: float | None
) -> None:
    space = bytearray(256)
    space[6], space[0x34] = 0x10, 0x40  # it has capabilities, the first at 0x40
    space[0x40], space[0x42] = 0x10, 0x40 | version  # PCI Express, a root port
    space[0x70] = control & 0xFF
    (root / f"sys/devices/pci0000:17/{PORT}/config").write_bytes(bytes(space))
    port, gpu = check("pci", pci.collect(str(root), {})).functions
    assert port.link_gts_target == expected
    assert gpu.why("link_gts_target") == "not a port"


def test_e18_without_access_to_the_registers_no_target_speed_is_reported(
    root: Path, check: Callable[..., Any]
) -> None:
    space = bytearray(64)
    space[6], space[0x34] = 0x10, 0x40
    (root / f"sys/devices/pci0000:17/{PORT}/config").write_bytes(bytes(space))
    port, _ = check("pci", pci.collect(str(root), {})).functions
    assert port.link_gts_target is None
    assert port.why("link_gts_target") == "beyond the 64 bytes"
