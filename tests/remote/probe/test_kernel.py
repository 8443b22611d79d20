"""Clock source and discipline, load, handles, fragmentation, memory errors, BIOS."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.evidence.kernel import UNSYNC
from nodevet.remote.probe.collectors import edac, host, kernel

Check = Callable[..., Any]
Capture = Callable[[str], str]
NODE_EXPORTER = "sysfs/node_exporter-sys.ttar"
PROC = "sysfs/node_exporter-proc-ethtool.tar.gz"
HWLOC = "sysfs/hwloc/"


def write(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return str(root.resolve())


def test_kernel_values_of_this_machine_are_read(check: Check) -> None:
    found = check("kernel", kernel.collect("/", {}))
    assert found.clocksource in found.clocksources
    assert found.load_1 >= 0 and 0 < found.threads < found.threads_max
    assert 0 < found.files < found.files_max
    assert found.errors == {} or set(found.errors) == {"clock_state", "clock_status"}


def test_the_clock_is_read_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Library:
        @staticmethod
        def adjtimex(pointer: Any) -> int:
            told = pointer._obj
            asked.append(told.modes)
            told.status, told.maxerror, told.esterror = 0x2001, 23500, 12
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library)
    assert kernel.adjtimex() == (0, 0x2001, 23500, 12)
    assert asked == [0]
    assert ctypes.sizeof(ctypes.c_long) * 4 < kernel.TIMEX


def test_a_clock_that_may_not_be_read_is_unknown(
    monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    class Library:
        @staticmethod
        def adjtimex(pointer: Any) -> int:
            ctypes.set_errno(1)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library)
    found = check("kernel", kernel.collect("/", {}))
    assert (found.clock_status, found.why("clock_status")) == (None, "EPERM")
    assert found.load_1 is not None


def test_the_clock_of_a_captured_tree_is_not_this_machines(tmp_path: Path, check: Check) -> None:
    found = check("kernel", kernel.collect(str(tmp_path.resolve()), {}))
    assert "is of another machine" in found.why("clock_status")
    assert found.why("free_huge_percent") == "the size of its pages is not known"
    assert found.why("clocksource") == found.why("files_max") == "ENOENT"


def test_unsync_is_the_bit_of_the_kernels_header() -> None:
    assert UNSYNC == 0x0040


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a load average"),
        ("0.1 0.2 0.3", "not a load average"),
        ("nan nan nan 1/2 3", "not a load average"),
        ("0.1 0.2 0.3 1/99999999999999 3", "not a load average"),
        ("1.2.3 0.2 0.3 1/9 3", "could not convert"),
    ],
)
def test_an_invalid_load_average_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        kernel.parse_load(text)


def test_the_worst_numa_node_counts() -> None:
    rows = (
        "Node 0, zone   Normal " + "0 " * 9 + "2 0\n"
        "Node 1, zone   Normal 1536 " + "0 " * 8 + "1 0\n"
        "Node 1, zone  Movable 0 " + "0 " * 8 + "0 0"
    )
    assert kernel.parse_free(rows, 4) == 25.0
    assert kernel.parse_free(rows, 64) == 25.0  # blocks of 64 KiB pages are of 2 MiB at order 5
    for bad in ("", "Node 0, zone DMA\n", "Node 0, zone DMA x", "Node 0, zone DMA 0 0"):
        with pytest.raises(ValueError, match=r"not a row|no free memory"):
            kernel.parse_free(bad, 4)


def test_a_kernel_as_node_exporter_reads_it(capture: Capture, check: Check) -> None:
    found = check("kernel", kernel.collect(capture(NODE_EXPORTER), {}))
    assert (found.clocksource, found.clocksources) == ("tsc", ("tsc", "hpet", "acpi_pm"))
    found = check("kernel", kernel.collect(capture(PROC), {}))
    assert (found.load_1, found.load_5, found.load_15) == (0.21, 0.37, 0.39)
    assert (found.files, found.files_max, found.threads) == (1024, 1631329, 719)
    assert (found.pid_max, found.threads_max) == (123, 7801)


def test_memory_errors_as_node_exporter_counts_them(capture: Capture, check: Check) -> None:
    found = check("edac", edac.collect(capture(NODE_EXPORTER), {}))
    (controller,) = found.controllers
    assert (controller.id, controller.corrected, controller.uncorrected) == (0, 1, 5)
    told = {dimm.id: (dimm.label, dimm.corrected, dimm.uncorrected) for dimm in controller.dimms}
    assert told["csrow1/ch0"] == ("mc0csrow1channel0", 0, 2)
    assert len(told) == 6


def test_dimms_of_later_kernels(tmp_path: Path, check: Check) -> None:
    place = "sys/devices/system/edac/mc/mc1"
    root = write(
        tmp_path,
        {
            f"{place}/mc_name": "F19h_M10h\n",
            f"{place}/ce_count": "3\n",
            f"{place}/ue_count": "0\n",
            f"{place}/seconds_since_reset": "86400\n",
            f"{place}/dimm12/dimm_label": "P0 CHANNEL M\n",
            f"{place}/dimm12/dimm_ce_count": "3\n",
            f"{place}/dimm12/dimm_ue_count": "x\n",
            f"{place}/dimm12/size": "65536\n",
            f"{place}/csrow0/ch0_ce_count": "3\n",
            f"{place}/csrow0/ch0_dimm_label": "P0 CHANNEL M\n",
            "sys/devices/system/edac/mc/power/async": "disabled\n",
        },
    )
    (controller,) = check("edac", edac.collect(root, {})).controllers
    assert (controller.driver, controller.since_s) == ("F19h_M10h", 86400)
    (dimm,) = controller.dimms
    assert (dimm.id, dimm.label, dimm.corrected) == ("dimm12", "P0 CHANNEL M", 3)
    assert dimm.size_mib == 65536
    assert dimm.why("uncorrected") == "not a number: 'x'"


def test_no_memory_controller_is_listed_without_an_edac_driver(
    tmp_path: Path, check: Check
) -> None:
    assert check("edac", edac.collect(str(tmp_path.resolve()), {})).controllers == ()
    (tmp_path / "sys/devices/system/edac/mc").mkdir(parents=True)
    assert check("edac", edac.collect(str(tmp_path.resolve()), {})).controllers == ()
    (tmp_path / "sys/devices/system/edac/mc").rmdir()
    (tmp_path / "sys/devices/system/edac/mc").write_text("")
    found = check("edac", edac.collect(str(tmp_path.resolve()), {}))
    assert (found.controllers, found.why("controllers")) == (None, "ENOTDIR")


@pytest.mark.parametrize(
    ("name", "vendor", "version", "date"),
    [
        (NODE_EXPORTER, "Dell Inc.", "2.2.4", "04/12/2021"),
        (HWLOC + "128arm-2pa2n8cluster4co.tar.bz2", "Huawei Corp.", "0.86", "07/19/2019"),
        (
            HWLOC + "nvidia-dgx-gb10.tar.bz2",
            "American Megatrends International, LLC.",
            "5.36_0ACUM018",
            "08/06/2025",
        ),
    ],
)
def test_the_bios_of_captured_machines(
    capture: Capture, check: Check, name: str, vendor: str, version: str, date: str
) -> None:
    found = check("host", host.collect(capture(name), {}))
    assert (found.bios_vendor, found.bios_version, found.bios_date) == (vendor, version, date)
