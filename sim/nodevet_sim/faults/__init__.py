"""Faults by name: what a scenario may put into a node. Pure.

A fault is a function of the healthy node and its own parameters; see patch.py for how several
faults combine.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nodevet_sim.faults import (
    asked,
    cpu_memory,
    devices,
    driver,
    drives,
    gpu,
    gpu_health,
    gpu_states,
    host,
    kernel,
    machine_states,
    network,
    node,
    ports,
    rdma,
    rising,
    running,
    settings,
    software,
    storage,
)
from nodevet_sim.faults.params import ClearedByBoot, FaultParams, NoParams, OneGpu, SomeGpus
from nodevet_sim.faults.patch import FaultError, Healthy, Patch, combine

__all__ = [
    "FAULTS",
    "FaultError",
    "Healthy",
    "NamedFault",
    "Patch",
    "combine",
    "describe",
    "summary",
]


class NamedFault(NamedTuple):
    params: type[FaultParams]
    apply: Callable[[Healthy, Any], Patch]


FAULTS: Mapping[str, NamedFault] = {
    "aer-errors": NamedFault(gpu.AerErrors, gpu.aer_errors),
    "clock-skew": NamedFault(node.WrongClock, node.clock_skew),
    "disk-full": NamedFault(node.DiskFull, node.disk_full),
    "driver-mismatch": NamedFault(node.DriverMismatch, node.driver_mismatch),
    "ecc-uncorrected": NamedFault(gpu.EccUncorrected, gpu.ecc_uncorrected),
    "governor-powersave": NamedFault(node.Governor, node.governor_powersave),
    "gpu-lost": NamedFault(ClearedByBoot, gpu.gpu_lost),
    "gpu-missing": NamedFault(OneGpu, gpu.gpu_missing),
    "mce": NamedFault(node.Mce, node.mce),
    "numa-swapped": NamedFault(NoParams, node.numa_swapped),
    "nvml-hang": NamedFault(gpu.NvmlHang, gpu.nvml_hang),
    "pcie-gen": NamedFault(gpu.PcieGen, gpu.pcie_gen),
    "pcie-width": NamedFault(gpu.PcieWidth, gpu.pcie_width),
    "persistence-off": NamedFault(SomeGpus, gpu.persistence_off),
    "power-capped": NamedFault(gpu.PowerCapped, gpu.power_capped),
    "python-missing": NamedFault(NoParams, node.python_missing),
    "reverts-on-boot": NamedFault(node.RevertedSettings, node.reverts_on_boot),
    "row-remap-pending": NamedFault(gpu.RowRemap, gpu.row_remap_pending),
    "slow": NamedFault(node.SlowSessions, node.slow),
    "sshd-hang": NamedFault(NoParams, node.sshd_hang),
    "sshd-stopped": NamedFault(NoParams, node.sshd_stopped),
    "thermal-throttle": NamedFault(gpu.Thermal, gpu.thermal_throttle),
    "xid": NamedFault(gpu.AnyXid, gpu.xid),
    "xid-79": NamedFault(gpu.Xid79, gpu.xid_79),
    **{name: NamedFault(*each) for name, each in gpu_health.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in gpu_states.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in host.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in kernel.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in cpu_memory.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in machine_states.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in drives.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in storage.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in devices.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in network.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in ports.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in rdma.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in rising.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in software.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in asked.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in driver.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in running.FAULTS.items()},
    **{name: NamedFault(*each) for name, each in settings.FAULTS.items()},
}


def describe(name: str) -> str:
    """A fault's documentation, whole."""
    return inspect.getdoc(FAULTS[name].apply) or ""


def summary(name: str) -> str:
    """What it is, in one line."""
    return describe(name).partition("\n")[0]
