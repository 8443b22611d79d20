"""Faults of the kernel and the firmware. A function's docstring is the fault's documentation."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import Content
from nodevet_sim.faults.node import NoParams
from nodevet_sim.faults.params import FaultParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.host_files import CLOCK, DMI, EDAC


def _there(healthy: Healthy, files: Mapping[str, Content], what: str) -> Patch:
    """These files instead of those that the node has. Raises FaultError if it has none."""
    found = healthy.present(files)
    if not found:
        raise FaultError(f"the node has no {what}")
    return Patch(found)


def clocksource_hpet(healthy: Healthy, want: NoParams) -> Patch:
    """The kernel gave up the CPUs' counter and keeps time by the HPET."""
    files = {f"{CLOCK}/current_clocksource": "hpet\n", f"{CLOCK}/available_clocksource": "hpet \n"}
    return _there(healthy, files, "clock source")


class Load(FaultParams):
    load: Annotated[float, Field(ge=0, le=100000)] = 900.0


def high_load(healthy: Healthy, want: Load) -> Patch:
    """The load average is high.

    `load`, of 1, 5 and 15 minutes, 900.
    """
    loads = " ".join([f"{want.load:.2f}"] * 3)
    return _there(healthy, {"proc/loadavg": f"{loads} 900/3187 41234\n"}, "load average")


class Handles(FaultParams):
    files: Annotated[int, Field(ge=0)] = 990000
    maximum: Annotated[int, Field(ge=1)] = 1000000


def out_of_files(healthy: Healthy, want: Handles) -> Patch:
    """Nearly all file handles are in use.

    `files`, in use, 990000; `maximum`, of the kernel, 1000000.
    """
    text = f"{want.files}\t0\t{want.maximum}\n"
    return _there(healthy, {"proc/sys/fs/file-nr": text}, "file handles")


def fragmented(healthy: Healthy, want: NoParams) -> Patch:
    """The node's free memory is in small pieces."""
    told = healthy.files.get("proc/buddyinfo", "")
    rows = [row.split()[:4] for row in _text(told).splitlines()]
    small = " ".join(["900000"] * 3 + ["0"] * 8)
    text = "".join(f"{' '.join(row)} {small}\n" for row in rows)
    return _there(healthy, {"proc/buddyinfo": text}, "buddyinfo")


def _text(content: Content) -> str:
    return content.decode("ascii", "replace") if isinstance(content, bytes) else content


class DimmErrors(FaultParams):
    controller: Annotated[int, Field(ge=0, le=255)] = 0
    dimm: Annotated[int, Field(ge=0, le=63)] = 0
    count: Annotated[int, Field(ge=1)] = 1


def dimm_uncorrected(healthy: Healthy, want: DimmErrors) -> Patch:
    """EDAC has counted an uncorrected error of a DIMM.

    `controller`, 0, and its `dimm`, 0; `count`, 1.
    """
    place = f"{EDAC}/mc{want.controller}"
    if f"{place}/dimm{want.dimm}/dimm_ue_count" not in healthy.files:
        raise FaultError(f"there is no mc{want.controller}/dimm{want.dimm}")
    names = (f"{place}/ue_count", f"{place}/dimm{want.dimm}/dimm_ue_count")
    return Patch(dict.fromkeys(names, f"{want.count}\n"))


class OldBios(FaultParams):
    version: Annotated[str, Field(min_length=1, max_length=64)] = "1.0.1"
    date: Annotated[str, Field(pattern=r"^\d\d/\d\d/\d{4}$")] = "01/20/2023"


def bios_old(healthy: Healthy, want: OldBios) -> Patch:
    """The BIOS is an old one.

    `version`, 1.0.1; `date`, 01/20/2023.
    """
    files = {f"{DMI}/bios_version": f"{want.version}\n", f"{DMI}/bios_date": f"{want.date}\n"}
    return _there(healthy, files, "DMI")


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "bios-old": (OldBios, bios_old),
    "clocksource-hpet": (NoParams, clocksource_hpet),
    "dimm-uncorrected": (DimmErrors, dimm_uncorrected),
    "high-load": (Load, high_load),
    "memory-fragmented": (NoParams, fragmented),
    "out-of-files": (Handles, out_of_files),
}
