"""Section gpu_activity: what the GPUs did while they were watched; read if asked for."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Real, Text, at_most
from nodevet.evidence.activity import Counted, Look, Numbers, Times
from nodevet.evidence.core import Record, SectionRecord

ACTIVITY_SAMPLES = at_most(1 << 15)  # of one GPU; the driver takes 60 a second at most


class GpuProcessActivity(Record, frozen=True, kw_only=True):
    """A process's share of a GPU. nvmlDeviceGetProcessUtilization, GetComputeRunningProcesses."""

    pid: int
    sm_percent: Real | None = None  # mean of the driver's samples
    memory_percent: Real | None = None
    memory_used_b: int | None = None


class GpuActivity(Record, frozen=True, kw_only=True):
    """One GPU: a value for each look, null where that look failed; counters first and last."""

    index: int
    uuid: Text | None = None
    name: Text | None = None
    bus_id: Text | None = None  # as sysfs spells it
    power_limit_mw: int | None = None  # enforced
    max_clock_sm_mhz: int | None = None
    memory_total_b: int | None = None
    pcie_generation: int | None = None  # of the link under load: the highest that was seen
    pcie_width: int | None = None
    utilization_percent: Numbers | None = None  # nvmlDeviceGetUtilizationRates: some SM was busy
    memory_utilization_percent: Numbers | None = None  # the memory was read or written
    clock_sm_mhz: Numbers | None = None
    clock_memory_mhz: Numbers | None = None
    power_mw: Numbers | None = None
    temperature_c: Numbers | None = None
    event_reasons: Numbers | None = None  # bit mask, nvmlDeviceGetCurrentClocksEventReasons
    memory_used_b: Numbers | None = None
    # into the GPU: of 20 ms, nvmlDeviceGetPcieThroughput; since the look before if it counts bytes
    pcie_rx_kb_s: Numbers | None = None
    pcie_tx_kb_s: Numbers | None = None
    pcie_rx_b: Counted | None = None  # NVML_FI_DEV_PCIE_COUNT_RX_BYTES
    pcie_tx_b: Counted | None = None
    nvlink_rx_kib: Counted | None = None  # of all links, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
    nvlink_tx_kib: Counted | None = None
    # how long a reason held the clocks down: NVML_FI_DEV_CLOCKS_EVENT_REASON_*
    power_cap_ns: Counted | None = None
    sw_thermal_ns: Counted | None = None
    hw_thermal_ns: Counted | None = None
    power_brake_ns: Counted | None = None
    # (seconds since the first look, percent): the driver's own samples, 6 to 60 a second
    samples: Annotated[tuple[tuple[Real, int], ...], ACTIVITY_SAMPLES] | None = None
    processes: Annotated[tuple[GpuProcessActivity, ...], bounds.PROCESSES] | None = None


class GpuActivities(SectionRecord, frozen=True, kw_only=True):
    """Every GPU, watched at the same times."""

    unique = ("gpus[].index", "gpus[].processes[].pid")
    plural = "GPUs"
    volatile = ("look", "times_s", "gpus")

    look: Look | None = None
    times_s: Times | None = None  # of each look, since the first
    gpus: Annotated[tuple[GpuActivity, ...], bounds.GPUS] | None = None
