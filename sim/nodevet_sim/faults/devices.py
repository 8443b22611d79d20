"""Faults of NICs and drives on the PCI bus. A function's docstring is the fault's documentation."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from nodevet_sim.faults.params import BootClears, FaultParams, NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch

CLASS = re.compile(r"(sys/devices/pci.*)/class")


def _nics(healthy: Healthy) -> list[str]:
    """Their directories, by their place on the bus."""
    return sorted(
        match.group(1)
        for path, content in healthy.files.items()
        if (match := CLASS.fullmatch(path)) and str(content).startswith("0x02")
    )


class NarrowNic(FaultParams):
    cleared_by: BootClears = "nothing"


def nic_narrow(healthy: Healthy, want: NarrowNic) -> Patch:
    """The link of the first NIC has half of its lanes.

    `cleared_by`, nothing.
    """
    for place in _nics(healthy):
        most = str(healthy.files.get(f"{place}/max_link_width", "")).strip()
        if most.isdecimal() and int(most) > 1:
            files = {f"{place}/current_link_width": f"{int(most) // 2}\n"}
            return Patch(files, restored=healthy.restored(files, want.cleared_by))
    raise FaultError("the node has no NIC with a PCIe link")


def nic_missing(healthy: Healthy, want: NoParams) -> Patch:
    """The first NIC is not on the PCI bus, and has no interface."""
    nics = _nics(healthy)
    if not nics:
        raise FaultError("the node has no NIC")
    return Patch(gone_slots=frozenset((nics[0].rpartition("/")[2],)))


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "nic-missing": (NoParams, nic_missing),
    "nic-narrow": (NarrowNic, nic_narrow),
}
