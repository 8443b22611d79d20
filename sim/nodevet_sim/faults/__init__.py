"""Faults by name: what a scenario may put into a node. Pure.

A fault is a function of the healthy node and its own parameters; see patch.py for how
several come together.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nodevet_sim.faults import gpu, node
from nodevet_sim.faults.params import OneGpu, Params, SomeGpus
from nodevet_sim.faults.patch import FaultError, Healthy, Patch, combine

__all__ = ["FAULTS", "Fault", "FaultError", "Healthy", "Patch", "combine", "describe", "summary"]


class Fault(NamedTuple):
    params: type[Params]
    apply: Callable[[Healthy, Any], Patch]


FAULTS: Mapping[str, Fault] = {
    "aer-errors": Fault(gpu.AerErrors, gpu.aer_errors),
    "clock-skew": Fault(node.Skew, node.clock_skew),
    "disk-full": Fault(node.DiskFull, node.disk_full),
    "driver-mismatch": Fault(node.DriverMismatch, node.driver_mismatch),
    "ecc-uncorrected": Fault(gpu.EccUncorrected, gpu.ecc_uncorrected),
    "governor-powersave": Fault(node.Governor, node.governor_powersave),
    "gpu-lost": Fault(OneGpu, gpu.gpu_lost),
    "gpu-missing": Fault(OneGpu, gpu.gpu_missing),
    "mce": Fault(node.Mce, node.mce),
    "numa-swapped": Fault(node.NoParams, node.numa_swapped),
    "nvml-hang": Fault(gpu.NvmlHang, gpu.nvml_hang),
    "pcie-gen": Fault(gpu.PcieGen, gpu.pcie_gen),
    "pcie-width": Fault(gpu.PcieWidth, gpu.pcie_width),
    "persistence-off": Fault(SomeGpus, gpu.persistence_off),
    "power-capped": Fault(gpu.PowerCapped, gpu.power_capped),
    "python-missing": Fault(node.NoParams, node.python_missing),
    "reverts-on-boot": Fault(node.Reverts, node.reverts_on_boot),
    "row-remap-pending": Fault(gpu.RowRemap, gpu.row_remap_pending),
    "slow": Fault(node.Seconds, node.slow),
    "sshd-hang": Fault(node.NoParams, node.sshd_hang),
    "sshd-stopped": Fault(node.NoParams, node.sshd_stopped),
    "thermal-throttle": Fault(gpu.Thermal, gpu.thermal_throttle),
    "xid": Fault(gpu.Xid, gpu.xid),
    "xid-79": Fault(gpu.Xid79, gpu.xid_79),
}


def describe(name: str) -> str:
    """A fault's documentation, whole."""
    return inspect.getdoc(FAULTS[name].apply) or ""


def summary(name: str) -> str:
    """What it is, in one line."""
    return describe(name).partition("\n")[0]
