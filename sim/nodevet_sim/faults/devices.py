"""Faults of NICs and drives on the PCI bus. A function's docstring is the fault's documentation."""

import re

from nodevet_sim.faults.node import NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch

CLASS = re.compile(r"(sys/devices/pci.*)/class")


def nic_narrow(healthy: Healthy, want: NoParams) -> Patch:
    """The link of the first NIC has half of its lanes."""
    nics = sorted(
        match.group(1)
        for path, content in healthy.files.items()
        if (match := CLASS.fullmatch(path)) and str(content).startswith("0x02")
    )
    for place in nics:
        most = str(healthy.files.get(f"{place}/max_link_width", "")).strip()
        if most.isdecimal() and int(most) > 1:
            return Patch({f"{place}/current_link_width": f"{int(most) // 2}\n"})
    raise FaultError("the node has no NIC with a PCIe link")


FAULTS = {"nic-narrow": (NoParams, nic_narrow)}
