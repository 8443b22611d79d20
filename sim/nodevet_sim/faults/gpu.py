"""Faults of GPUs and their links. A function's docstring is the fault's documentation."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from nodevet_sim.description import Content, LogLine
from nodevet_sim.faults.params import ClearedByBoot, ClearedGpu, FaultParams, Gpu, OneGpu, SomeGpus
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.pci_files import aer_text, speed
from nodevet_sim.shipped import RATES
from nodevet_sim.state import StateError, check_key

GPU_IDLE, HW_SLOWDOWN, HW_THERMAL = 0x1, 0x8, 0x40  # nvmlClocksEventReason*
AFTER = 3.0  # seconds after boot at which a log line of a fault appears


class PcieWidth(ClearedByBoot):
    width: Literal[1, 2, 4, 8] | None = None


def pcie_width(healthy: Healthy, want: PcieWidth) -> Patch:
    """A GPU's link runs on fewer lanes than both of its ends can do.

    `gpu`; `width`, by default half of the lanes in use; `cleared_by`, nothing.
    """
    gpu = healthy.gpu(want.gpu)
    now = healthy.number(gpu, "pcie_width")
    width = want.width or max(now // 2, 1)
    if width >= now:
        raise FaultError(f"GPU {gpu} runs on {now} lanes; give a smaller width")
    files = {f"{place}/current_link_width": f"{width}\n" for place in healthy.ends(gpu)}
    return _slow_link(healthy, gpu, files, {"pcie_width": str(width)}, want.cleared_by)


class PcieGen(ClearedByBoot):
    generation: Annotated[int, Field(ge=1, le=5)] | None = None


def pcie_gen(healthy: Healthy, want: PcieGen) -> Patch:
    """A GPU's link trained at a lower generation than both of its ends can do.

    `gpu`; `generation`, by default one less than now; `cleared_by`, nothing. An idle GPU may run
    below Gen3.
    """
    gpu = healthy.gpu(want.gpu)
    now = healthy.number(gpu, "pcie_generation")
    generation = want.generation or max(now - 1, 1)
    if generation >= now:
        raise FaultError(f"GPU {gpu} runs at Gen{now} (idle, perhaps); give a lower generation")
    text = f"{speed(RATES[generation])}\n"
    files = {f"{place}/current_link_speed": text for place in healthy.ends(gpu)}
    return _slow_link(healthy, gpu, files, {"pcie_generation": str(generation)}, want.cleared_by)


def _slow_link(
    healthy: Healthy,
    gpu: int,
    files: Mapping[str, Content],
    state: Mapping[str, str],
    cleared_by: str,
) -> Patch:
    """A link as the kernel and NVML show it until it is trained again."""
    ends = {} if cleared_by == "nothing" else {"cleared_by": cleared_by}
    changed = healthy.present(files)
    return Patch(
        changed,
        {f"gpu.{gpu}.{key}": value for key, value in {**state, **ends}.items()},
        restored=healthy.restored(changed, cleared_by),
        gpu=gpu,
    )


def gpu_lost(healthy: Healthy, want: ClearedByBoot) -> Patch:
    """A GPU has fallen off the bus: NVML_ERROR_GPU_IS_LOST, its config space reads all ones.

    `gpu`; `cleared_by`, nothing. The driver stays bound, its device node stays, and the kernel's
    records of it (ids, AER counters) stay readable. For the kernel log add xid-79.
    """
    gpu = healthy.gpu(want.gpu)
    place = healthy.place(gpu)
    config = healthy.files.get(f"{place}/config", b"")
    files: dict[str, Content] = {
        f"{place}/config": b"\xff" * len(config),
        f"{place}/current_link_speed": "Unknown\n",
        f"{place}/current_link_width": "63\n",
    }
    lost = healthy.present(files)
    state = {f"gpu.{gpu}.lost": "1", f"gpu.{gpu}.cleared_by": want.cleared_by}
    return Patch(lost, state, restored=healthy.restored(lost, want.cleared_by), gpu=gpu)


def gpu_missing(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU is missing from NVML, the PCI bus and /dev.

    `gpu`. The GPUs after it move up in NVML's order and keep everything else, as after a removal.
    """
    gpu = healthy.gpu(want.gpu)
    healthy.place(gpu)
    return Patch(gone=frozenset((gpu,)))


class NvmlHang(OneGpu):
    call: str = "temperature_gpu_c"


def nvml_hang(healthy: Healthy, want: NvmlHang) -> Patch:
    """An NVML call on one GPU never returns.

    `gpu`; `call`, the value that is read, by its name in the evidence: temperature_gpu_c.
    """
    gpu = healthy.gpu(want.gpu)
    key = f"gpu.{gpu}.{want.call}"
    try:
        check_key(key)
    except StateError as error:
        raise FaultError(str(error)) from None
    return Patch(state={key: "hang"}, gpu=gpu)


class PowerCapped(SomeGpus):
    watts: Annotated[int, Field(ge=1, le=10000)] | None = None


def power_capped(healthy: Healthy, want: PowerCapped) -> Patch:
    """The power limit is lower than the board's default.

    `gpu`, by default all; `watts`, by default 70 % of the default, or the lowest allowed.
    """
    state = {}
    for gpu in healthy.gpus(want.gpu):
        limit = lower_limit(healthy, gpu, want.watts)
        state[f"gpu.{gpu}.power_limit_mw"] = str(limit)
        state[f"gpu.{gpu}.power_limit_enforced_mw"] = str(limit)
    return Patch(state=state)


def lower_limit(healthy: Healthy, gpu: int, watts: int | None) -> int:
    """A power limit below the default, in mW. Raises FaultError."""
    default = healthy.number(gpu, "power_limit_default_mw")
    lowest = healthy.number(gpu, "power_limit_min_mw")
    limit = max(default * 7 // 10 // 1000 * 1000, lowest) if watts is None else watts * 1000
    if not lowest <= limit < default:
        allowed = f"{lowest / 1000:g} W and more, below {default / 1000:g} W"
        raise FaultError(f"GPU {gpu} accepts {allowed}, not {limit / 1000:g} W")
    return limit


def persistence_off(healthy: Healthy, want: SomeGpus) -> Patch:
    """Persistence mode is off, and nvidia-persistenced does not start.

    `gpu`, by default all; the daemon is off in either case.
    """
    state = {f"gpu.{gpu}.persistence_mode": "0" for gpu in healthy.gpus(want.gpu)}
    return Patch(state=state, services={"nvidia-persistenced.service": False})


class EccUncorrected(OneGpu):
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1


def ecc_uncorrected(healthy: Healthy, want: EccUncorrected) -> Patch:
    """A GPU's memory has uncorrected ECC errors, volatile and aggregate.

    `gpu`; `count`, 1.
    """
    gpu = healthy.gpu(want.gpu)
    state = {}
    for life in ("volatile", "aggregate"):
        for part in ("uncorrected", "dram_uncorrected"):
            key = f"ecc.{life}_{part}"
            state[f"gpu.{gpu}.{key}"] = str(healthy.number(gpu, key) + want.count)
    return Patch(state=state, gpu=gpu)


class RowRemap(ClearedGpu):
    count: Annotated[int, Field(ge=1, le=512)] = 1


def row_remap_pending(healthy: Healthy, want: RowRemap) -> Patch:
    """Memory rows of a GPU are pending a remap at the next reset.

    `gpu`; `count` of rows after uncorrected errors, 1; `cleared_by`, reset.
    """
    gpu = healthy.gpu(want.gpu)
    rows = healthy.number(gpu, "remapping.uncorrected") + want.count
    healthy.number(gpu, "remapping.pending")
    state = {"remapping.pending": "1", "remapping.uncorrected": str(rows)}
    if healthy.text(gpu, "recovery_action") is not None:
        state["recovery_action"] = "GPU_RESET"
    patch = Patch(state={f"gpu.{gpu}.{key}": value for key, value in state.items()}, gpu=gpu)
    return want.until_cleared(patch)


class Xid79(OneGpu):
    after: Annotated[float, Field(ge=0)] = AFTER


def xid_79(healthy: Healthy, want: Xid79) -> Patch:
    """The kernel log says that a GPU has fallen off the bus. Combine it with gpu-lost.

    `gpu`; `after`, seconds after boot, 3.
    """
    gpu = healthy.gpu(want.gpu)
    return _xid(healthy, gpu, 79, "GPU has fallen off the bus.", want.after, off_the_bus=True)


XIDS = {  # as the driver prints them, after the process
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
    "partition 6, subpartition 3.",
    63: "Row Remapper: New row (0x00000002eebc4100) marked for remapping, reset gpu to activate.",
    64: "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped",
    79: "GPU has fallen off the bus.",
    94: "Ch 00000008",
}


class AnyXid(OneGpu):
    code: Annotated[int, Field(ge=1, le=999)] = 63
    text: Annotated[str, Field(max_length=500)] | None = None
    after: Annotated[float, Field(ge=0)] = AFTER


def xid(healthy: Healthy, want: AnyXid) -> Patch:
    """The kernel log reports an Xid for a GPU.

    `gpu`; `code`, 63; `text` after the process; `after`, seconds after boot, 3.
    """
    gpu = healthy.gpu(want.gpu)
    text = want.text if want.text is not None else XIDS.get(want.code, "")
    return _xid(healthy, gpu, want.code, text, want.after)


def _xid(
    healthy: Healthy, gpu: int, code: int, text: str, after: float, *, off_the_bus: bool = False
) -> Patch:
    address = healthy.address(gpu)
    bus = address.rpartition(".")[0]
    who = "pid='<unknown>', name=<unknown>"
    lines = [f"NVRM: GPU at PCI:{bus}: {healthy.text(gpu, 'uuid') or 'GPU-unknown'}"]
    lines.append(f"NVRM: Xid (PCI:{bus}): {code}, {who}" + (f", {text}" if text else ""))
    if off_the_bus:
        lines.append(f"NVRM: GPU {address}: GPU has fallen off the bus.")
    return Patch(log=tuple(LogLine(line, after) for line in lines))


class Thermal(OneGpu):
    celsius: Annotated[int, Field(ge=60, le=120)] | None = None


def thermal_throttle(healthy: Healthy, want: Thermal) -> Patch:
    """A GPU is in hardware thermal slowdown.

    `gpu`; `celsius`, by default the GPU's own slowdown temperature.
    """
    gpu = healthy.gpu(want.gpu)
    reasons = healthy.number(gpu, "event_reasons") & ~GPU_IDLE | HW_SLOWDOWN | HW_THERMAL
    celsius = want.celsius or int(healthy.text(gpu, "temperature_slowdown_c") or 90)
    state = {"event_reasons": hex(reasons), "temperature_gpu_c": str(celsius)}
    margin = healthy.text(gpu, "tlimit_slowdown_c")
    if margin is not None and healthy.text(gpu, "temperature_margin_c") is not None:
        state["temperature_margin_c"] = margin
    return Patch(state={f"gpu.{gpu}.{key}": value for key, value in state.items()}, gpu=gpu)


class AerErrors(FaultParams):
    gpu: Gpu | None = None
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    after: Annotated[float, Field(ge=0)] = AFTER


def aer_errors(healthy: Healthy, want: AerErrors) -> Patch:
    """A GPU's link has corrected errors (RxErr): AER counters, NVML's replays, the kernel log.

    `gpu`; `count`, 100; `after`, seconds after boot, 3.
    """
    gpu = healthy.gpu(want.gpu)
    place, address = healthy.place(gpu), healthy.address(gpu)
    port = healthy.ends(gpu)[-1].rpartition("/")[2]
    device = (healthy.text(gpu, "pci_device") or "10de:0000").lower()
    lines = (
        f"pcieport {port}: AER: Corrected error message received from {address}",
        f"nvidia {address}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        f"nvidia {address}:   device [{device}] error status/mask=00000001/0000a000",
        f"nvidia {address}:    [ 0] RxErr                  (First)",
    )
    counters = {
        f"{place}/aer_dev_correctable": aer_text("correctable", {"RxErr": want.count}),
    }
    return Patch(
        healthy.present(counters),
        {f"gpu.{gpu}.pcie_replay_counter": str(want.count)},
        gpu=gpu,
        log=tuple(LogLine(line, want.after) for line in lines),
    )
