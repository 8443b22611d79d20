"""Section edac."""

from typing import Annotated

from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

CONTROLLERS = at_most(256)  # of memory: 12 in a socket, and those of CXL
DIMMS = at_most(64)  # of one controller, or their ranks


class Dimm(Record, frozen=True, kw_only=True):
    """A DIMM, or one rank of it: /sys/devices/system/edac/mc/mc<N>/dimm<N>."""

    id: Text  # dimm0, rank3, csrow0/ch1
    label: Text | None = None  # CPU_SrcID#0_MC#1_Chan#0_DIMM#0, or what ras-mc-ctl registered
    corrected: int | None = None  # errors since the driver was loaded
    uncorrected: int | None = None
    size_mib: int | None = None


class MemoryController(Record, frozen=True, kw_only=True):
    """/sys/devices/system/edac/mc/mc<id>."""

    volatile = ("since_s",)

    id: int
    driver: Text | None = None  # mc_name: Intel_10nm Socket#0 IMC#0, F19h_M10h
    corrected: int | None = None  # those of no known DIMM, too
    uncorrected: int | None = None
    since_s: int | None = None  # seconds that it has counted
    dimms: Annotated[tuple[Dimm, ...], DIMMS] | None = None


class Edac(SectionRecord, frozen=True, kw_only=True):
    """Memory errors by controller and DIMM. No controller: no EDAC driver is loaded."""

    unique = ("controllers[].id", "controllers[].dimms[].id")
    plural = "memory controllers"

    controllers: Annotated[tuple[MemoryController, ...], CONTROLLERS] | None = None
