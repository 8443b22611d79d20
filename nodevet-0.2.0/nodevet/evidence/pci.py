"""Section pci."""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Annotated

import msgspec

from nodevet.base import bounds
from nodevet.base.bounds import NumberList, Real, Text, at_most
from nodevet.evidence.core import Record, SectionRecord

ERROR_KINDS = at_most(64)  # of PCIe errors: 16 correctable ones and 27 others, aer.c


class Aer(Record, frozen=True, kw_only=True):
    """aer_dev_{correctable,fatal,nonfatal}: totals since boot, and the kinds above zero."""

    correctable: int | None = None
    nonfatal: int | None = None
    fatal: int | None = None
    kinds: Annotated[dict[Text, int], ERROR_KINDS] = msgspec.field(default_factory=dict)


class PciFunction(Record, frozen=True, kw_only=True):
    """One PCI function. /sys/bus/pci/devices/<address>/*."""

    volatile = ("link_gts",)

    address: Text  # 0000:19:00.0
    class_code: Text | None = None  # six hex digits: 030200
    vendor: Text | None = None  # four hex digits: 10de
    device: Text | None = None
    subsystem_vendor: Text | None = None
    subsystem_device: Text | None = None
    revision: Text | None = None  # two hex digits; ff: the function no longer answers
    driver: Text | None = None  # bound kernel driver
    physfn: Text | None = None  # of an SR-IOV virtual function the physical one; "" of any other
    numa_node: int | None = None  # -1: the firmware does not say
    local_cpulist: NumberList | None = None
    link_gts: Real | None = None  # current_link_speed
    link_gts_max: Real | None = None
    # of a port: Target Link Speed of LnkCtl2, the most that the link below it is to train to
    link_gts_target: Real | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    aer: Aer = Aer()
    # addresses of the ports above, nearest first
    upstream: Annotated[tuple[Text, ...], bounds.BUSES] | None = None

    @property
    def id(self) -> str:
        return f"{self.vendor}:{self.device}"

    @property
    def is_unbound(self) -> bool:
        """Whether it has no driver; False if that was not read."""
        return self.driver is None and self.errors.get("driver") == UNBOUND

    @property
    def kind(self) -> str:
        """gpu, vgpu, nvswitch, nic, nvme, port or other, from the class code and the vendor.

        vgpu: a virtual function of a GPU, which a vGPU host gives to virtual machines; it has
        the ids of the GPU, and NVML does not list it."""
        return _kind(self.class_code or "", self.vendor or "", bool(self.physfn))


UNBOUND = "no driver is bound"
"""The probe's reason for a missing driver."""

DATA_NICS = ("0200", "0207", "0208")
"""Classes: Ethernet, InfiniBand, fabric (Omni-Path)."""
OTHER_NETWORK, MELLANOX = "0280", "15b3"
"""Wi-Fi cards have this class; of the NICs, only ConnectX-3 has it."""


@lru_cache(1024)
def _kind(code: str, vendor: str, is_virtual: bool) -> str:
    is_nvidia = vendor == "10de"
    if is_nvidia and code[:4] in ("0300", "0302"):
        return "vgpu" if is_virtual else "gpu"
    if is_nvidia and code[:4] == "0680":
        return "nvswitch"
    if code[:4] in DATA_NICS or (code[:4] == OTHER_NETWORK and vendor == MELLANOX):
        return "nic"
    if code[:4] == "0108":
        return "nvme"
    return "port" if code[:4] == "0604" else "other"


class Pci(SectionRecord, frozen=True, kw_only=True, dict=True):
    """Every NVIDIA function, NIC and NVMe, and every port above one of them."""

    unique = ("functions[].address",)
    plural = "PCI devices"

    functions: Annotated[tuple[PciFunction, ...], bounds.FUNCTIONS] | None = None
    # the ports that tell the kernel of errors, by /sys/bus/pci_express/drivers/aer; none where
    # the firmware handles them first
    aer_ports: Annotated[tuple[Text, ...], bounds.FUNCTIONS] | None = None
    firmware_sources: int | None = None  # of errors, by APEI: /sys/bus/platform/drivers/GHES

    @cached_property
    def by_address(self) -> Mapping[str, PciFunction]:
        return {function.address: function for function in self.functions or ()}

    @cached_property
    def _by_kind(self) -> Mapping[str, tuple[PciFunction, ...]]:
        functions_by_kind: dict[str, list[PciFunction]] = {}
        for function in self.functions or ():
            functions_by_kind.setdefault(function.kind, []).append(function)
        return {kind: tuple(functions) for kind, functions in functions_by_kind.items()}

    def of_kind(self, kind: str) -> tuple[PciFunction, ...]:
        """The functions of a kind."""
        return self._by_kind.get(kind, ())


KEPT_FOR_GUESTS = ("vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub", "pciback", "xen-pciback")
"""Drivers that keep a GPU for a virtual machine, hidden from NVML."""


WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""Lanes that a link can have."""
RATES = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""GT/s of a lane, by generation."""


_GENERATIONS = {rate: number for number, rate in RATES.items()}


def generation_of(gts: float | None) -> int:
    """The generation that runs at this rate; 0 for none."""
    return _GENERATIONS.get(gts or 0.0, 0)
