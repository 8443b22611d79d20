"""Faults of single facts that NVML reports about a GPU: its memory, clocks, links and fabric. A
function's docstring is the fault's documentation."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import LogLine
from nodevet_sim.faults.change import gpu_values, link_values
from nodevet_sim.faults.params import ClearedGpu, FaultParams, NoParams, OneGpu
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.pci_files import aer_text

GPU_IDLE, HW_SLOWDOWN, SW_THERMAL, POWER_BRAKE = 0x1, 0x8, 0x20, 0x80  # nvmlClocksEventReason*
INSUFFICIENT_NVLINKS = 5 << 8  # NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_*
NO_FAULT = 0x1AA
NO_DOMAIN = "00000000-0000-0000-0000-000000000000"
Rows = Annotated[int, Field(ge=1, le=512)]
Errors = Annotated[int, Field(ge=1, le=10**9)]


def row_remap_failed(healthy: Healthy, want: OneGpu) -> Patch:
    """A row of a GPU's memory could not be remapped: its bank has no spare row left.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, remapping__failure=1)


class SpareRows(OneGpu):
    banks: Rows = 2


def spare_rows_used(healthy: Healthy, want: SpareRows) -> Patch:
    """Memory banks of a GPU have no spare row left; no remap has failed yet.

    `gpu`; `banks`, 2.
    """
    return gpu_values(healthy, want.gpu, remapping__banks_none=want.banks)


class RemappedRows(OneGpu):
    rows: Rows = 100


def rows_remapped(healthy: Healthy, want: RemappedRows) -> Patch:
    """Many memory rows of a GPU were remapped after uncorrected errors.

    `gpu`; `rows`, 100.
    """
    return gpu_values(healthy, want.gpu, remapping__uncorrected=want.rows)


def pages_pending(healthy: Healthy, want: ClearedGpu) -> Patch:
    """A GPU that retires pages (a T4, a V100) has a page that waits for the next reset.

    `gpu`; `cleared_by`, reset.
    """
    patch = gpu_values(healthy, want.gpu, retired_pages__pending=1)
    return want.until_cleared(patch)


class EccErrors(OneGpu):
    count: Errors = 20_000


def ecc_corrected(healthy: Healthy, want: EccErrors) -> Patch:
    """A GPU's memory has many corrected ECC errors, volatile and aggregate.

    `gpu`; `count`, 20000.
    """
    return _errors(healthy, want, ("corrected", "dram_corrected"))


class SramErrors(OneGpu):
    count: Errors = 1


def ecc_sram_uncorrected(healthy: Healthy, want: SramErrors) -> Patch:
    """A GPU's SRAM has uncorrected ECC errors, volatile and aggregate.

    `gpu`; `count`, 1.
    """
    return _errors(healthy, want, ("uncorrected", "sram_uncorrected"))


def _errors(
    healthy: Healthy,
    want: EccErrors | SramErrors,
    parts: tuple[str, ...],
    lives: tuple[str, ...] = ("volatile", "aggregate"),
) -> Patch:
    counts = {f"ecc__{life}_{part}": want.count for life in lives for part in parts}
    return gpu_values(healthy, want.gpu, **counts)


def ecc_sram_corrected(healthy: Healthy, want: EccErrors) -> Patch:
    """A GPU's SRAM has many corrected ECC errors, volatile and aggregate.

    `gpu`; `count`, 20000.
    """
    return _errors(healthy, want, ("corrected", "sram_corrected"))


def ecc_uncorrected_earlier(healthy: Healthy, want: SramErrors) -> Patch:
    """A GPU's memory had uncorrected ECC errors before its last reset: only aggregate ones.

    `gpu`; `count`, 1. Only a baseline that limits them detects it.
    """
    return _errors(healthy, want, ("uncorrected", "dram_uncorrected"), lives=("aggregate",))


def sram_threshold(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU reports that its SRAM has passed NVIDIA's error threshold.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, ecc__sram_threshold_exceeded=1)


def ecc_pending(healthy: Healthy, want: OneGpu) -> Patch:
    """ECC of a GPU is on, and will be off after the next reboot.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, ecc_pending=0)


def tpc_repair_pending(healthy: Healthy, want: ClearedGpu) -> Patch:
    """A processing cluster (TPC) of a GPU waits to be repaired at the next reset.

    `gpu`; `cleared_by`, reset.
    """
    patch = gpu_values(healthy, want.gpu, repair__tpc_pending=1)
    return want.until_cleared(patch)


class HeldLimit(OneGpu):
    watts: Annotated[int, Field(ge=1, le=10_000)] = 60


def power_limit_held(healthy: Healthy, want: HeldLimit) -> Patch:
    """Something other than its own limit holds a GPU at a lower power.

    `gpu`; `watts`, the limit that is enforced, 60.
    """
    return gpu_values(healthy, want.gpu, power_limit_enforced_mw=want.watts * 1000)


def power_brake(healthy: Healthy, want: OneGpu) -> Patch:
    """The platform slows a GPU down by its power brake.

    `gpu`.
    """
    return _slowed(healthy, want, HW_SLOWDOWN | POWER_BRAKE)


def software_slowdown(healthy: Healthy, want: OneGpu) -> Patch:
    """The driver slows a GPU down because of its heat.

    `gpu`.
    """
    return _slowed(healthy, want, SW_THERMAL)


def _slowed(healthy: Healthy, want: OneGpu, reasons: int) -> Patch:
    now = healthy.number(healthy.gpu(want.gpu), "event_reasons")
    return gpu_values(healthy, want.gpu, event_reasons=hex(now & ~GPU_IDLE | reasons))


class BrakeSeconds(OneGpu):
    seconds: Annotated[int, Field(ge=1, le=10**8)] = 600


def braked_earlier(healthy: Healthy, want: BrakeSeconds) -> Patch:
    """The platform's power brake slowed a GPU down earlier, but not now.

    `gpu`; `seconds`, in all: 600.
    """
    return gpu_values(healthy, want.gpu, throttled_power_brake_ns=want.seconds * 10**9)


class SlowedSeconds(OneGpu):
    seconds: Annotated[int, Field(ge=1, le=10**8)] = 600


def slowed_earlier(healthy: Healthy, want: SlowedSeconds) -> Patch:
    """The driver slowed a GPU down because of its heat earlier, but not now.

    `gpu`; `seconds`, in all: 600.
    """
    return gpu_values(healthy, want.gpu, throttled_sw_thermal_ns=want.seconds * 10**9)


def capped_earlier(healthy: Healthy, want: SlowedSeconds) -> Patch:
    """A GPU was at its power limit for a long time earlier, but is not now.

    `gpu`; `seconds`, in all: 600. Only a baseline that limits them detects it.
    """
    return gpu_values(healthy, want.gpu, throttled_power_cap_ns=want.seconds * 10**9)


def gsp_off(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU runs without GSP firmware, which the others have.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, gsp_firmware_enabled=0)


class OtherSubsystem(OneGpu):
    device: Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")] = "1626"


def gpu_board_other(healthy: Healthy, want: OtherSubsystem) -> Patch:
    """A GPU is the same chip as the others on another board: its PCI subsystem differs.

    `gpu`; `device`, of the subsystem, 1626.
    """
    gpu = healthy.gpu(want.gpu)
    patch = gpu_values(healthy, gpu, pci_subsystem=f"10de:{want.device}")
    return replace(patch, files={f"{healthy.place(gpu)}/subsystem_device": f"0x{want.device}\n"})


class LowerClock(OneGpu):
    mhz: Annotated[int, Field(ge=1, le=10_000)] = 1755


def gpu_clock_other(healthy: Healthy, want: LowerClock) -> Patch:
    """A GPU has a lower maximum clock than the others, as a board of another variant.

    `gpu`; `mhz`, of its SMs, 1755.
    """
    return gpu_values(healthy, want.gpu, max_clock_sm_mhz=want.mhz)


def gpu_memory_clock_other(healthy: Healthy, want: LowerClock) -> Patch:
    """The memory of a GPU has a lower maximum clock than that of the others.

    `gpu`; `mhz`, 1755.
    """
    return gpu_values(healthy, want.gpu, max_clock_memory_mhz=want.mhz)


class LowerDefault(OneGpu):
    watts: Annotated[int, Field(ge=1, le=10_000)] = 500


def gpu_default_limit_other(healthy: Healthy, want: LowerDefault) -> Patch:
    """A GPU has a lower default power limit than the others, as a board of another variant.

    `gpu`; `watts`, 500.
    """
    limits = ("power_limit_mw", "power_limit_enforced_mw", "power_limit_default_mw")
    return gpu_values(healthy, want.gpu, **dict.fromkeys(limits, want.watts * 1000))


class LowerGeneration(OneGpu):
    generation: Annotated[int, Field(ge=1, le=5)] = 4


def gpu_generation_other(healthy: Healthy, want: LowerGeneration) -> Patch:
    """A GPU supports a lower PCIe generation than the others, as a board of another variant.

    `gpu`; `generation`, 4.
    """
    return gpu_values(healthy, want.gpu, pcie_generation_device_max=want.generation)


def reset_required(healthy: Healthy, want: ClearedGpu) -> Patch:
    """NVML reports that a GPU needs a reset: NVML_ERROR_RESET_REQUIRED.

    `gpu`; `cleared_by`, reset.
    """
    patch = gpu_values(healthy, want.gpu, utilization_gpu_percent="NVML_ERROR_RESET_REQUIRED")
    return want.until_cleared(patch)


class OtherDomain(OneGpu):
    uuid: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")] = (
        "00000002-0000-0000-0000-000000000002"
    )


def domain_other(healthy: Healthy, want: OtherDomain) -> Patch:
    """A GPU is in another multi-node NVLink domain than the others.

    `gpu`; `uuid`, of that domain. The node needs GPUs that have one: `gpus: gb200`.
    """
    return gpu_values(healthy, want.gpu, fabric__cluster_uuid=want.uuid)


class OtherClique(OneGpu):
    clique: Annotated[int, Field(ge=0, lt=2**32)] = 7


def clique_other(healthy: Healthy, want: OtherClique) -> Patch:
    """A GPU is in another clique of its multi-node NVLink domain than the others.

    `gpu`; `clique`, its number, 7. The node needs GPUs that have one: `gpus: gb200`. Only a
    baseline that gives the number detects it.
    """
    return gpu_values(healthy, want.gpu, fabric__clique_id=want.clique)


def domain_recovery(healthy: Healthy, want: OneGpu) -> Patch:
    """The driver of a GPU asks to recover the IMEX domain.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, recovery_action="RECOVER_IMEX_DOMAIN")


class MemoryMargin(OneGpu):
    margin: Annotated[int, Field(ge=-20, le=50)] = 1


def gpu_memory_hot(healthy: Healthy, want: MemoryMargin) -> Patch:
    """The memory of a GPU is close to its maximum temperature. NVML gives that limit on an A100.

    `gpu`; `margin`, degrees below it, 1.
    """
    limit = healthy.number(healthy.gpu(want.gpu), "temperature_memory_max_c")
    return gpu_values(healthy, want.gpu, temperature_memory_c=limit - want.margin)


class MemoryClock(OneGpu):
    mhz: Annotated[int, Field(ge=1, le=10_000)] = 1593


def memory_clock_lowered(healthy: Healthy, want: MemoryClock) -> Patch:
    """The application clock of a GPU's memory is lower than the board's default.

    `gpu`; `mhz`, 1593.
    """
    return gpu_values(healthy, want.gpu, app_clock_memory_mhz=want.mhz)


def mig_on(healthy: Healthy, want: OneGpu) -> Patch:
    """MIG mode of a GPU is on, but the GPU has no instances yet.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, mig_current=1, mig_pending=1)


class AskedAction(ClearedGpu):
    action: Annotated[str, Field(pattern=r"^[A-Z0-9_]{3,40}$")] = "NODE_REBOOT"


def recovery_needed(healthy: Healthy, want: AskedAction) -> Patch:
    """The driver asks for a recovery of a GPU.

    `gpu`; `action`, NODE_REBOOT; `cleared_by`, reset.
    """
    patch = gpu_values(healthy, want.gpu, recovery_action=want.action)
    return want.until_cleared(patch)


class LinkCrcErrors(OneGpu):
    count: Errors = 50


def nvlink_recoveries(healthy: Healthy, want: LinkCrcErrors) -> Patch:
    """An NVLink of a GPU was recovered many times.

    `gpu`; `count`, 50.
    """
    return link_values(healthy, want.gpu, recovery_errors=want.count)


def nvlink_replays(healthy: Healthy, want: LinkCrcErrors) -> Patch:
    """An NVLink of a GPU retransmitted many packets.

    `gpu`; `count`, 50.
    """
    return link_values(healthy, want.gpu, replay_errors=want.count)


def nvlink_data_errors(healthy: Healthy, want: LinkCrcErrors) -> Patch:
    """An NVLink of a GPU has CRC errors in its data.

    `gpu`; `count`, 50.
    """
    return link_values(healthy, want.gpu, crc_data_errors=want.count)


class LinkBitErrors(OneGpu):
    rate: Annotated[float, Field(gt=0, lt=1)] = 3e-9


def nvlink_bit_errors(healthy: Healthy, want: LinkBitErrors) -> Patch:
    """An NVLink of a GPU has bit errors that its error correction cannot repair.

    `gpu`; `rate`, per bit after correction, 3e-9. NVML reports it for Blackwell GPUs.
    """
    return link_values(healthy, want.gpu, effective_ber=ber_word(want.rate))


def nvlink_symbol_errors(healthy: Healthy, want: LinkBitErrors) -> Patch:
    """An NVLink of a GPU has symbol errors; its error correction still repairs the bits.

    `gpu`; `rate`, per symbol, 3e-9. NVML reports it for Blackwell GPUs.
    """
    return link_values(healthy, want.gpu, symbol_ber=ber_word(want.rate))


def ber_word(rate: float) -> int:
    """A rate as NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER has it: mantissa << 8 | exponent.

    >>> hex(ber_word(3e-9))
    '0x309'
    """
    digit, _, power = f"{rate:.0e}".partition("e-")
    return int(digit) << 8 | int(power)


def domain_lost(healthy: Healthy, want: NoParams) -> Patch:
    """No GPU of the node is in a multi-node NVLink domain any more: its UUID is zero.

    The node needs GPUs that have one: `gpus: gb200`.
    """
    state = {}
    for gpu in healthy.gpus("all"):
        if (healthy.text(gpu, "fabric.cluster_uuid") or NO_DOMAIN) == NO_DOMAIN:
            raise FaultError(f"GPU {gpu} is in no multi-node NVLink domain")
        state[f"gpu.{gpu}.fabric.cluster_uuid"] = NO_DOMAIN
        state[f"gpu.{gpu}.fabric.clique_id"] = "0"
    return Patch(state=state)


def memory_unrepairable(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU's memory cannot be repaired any more. NVML reports it for a GB200.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, repair__unrepairable_memory=1)


class Replays(OneGpu):
    count: Errors = 5000


def replays(healthy: Healthy, want: Replays) -> Patch:
    """A GPU retransmitted many packets on its PCIe link.

    `gpu`; `count`, 5000.
    """
    return gpu_values(healthy, want.gpu, pcie_replay_counter=want.count)


def fabric_lost(healthy: Healthy, want: NoParams) -> Patch:
    """No GPU has a fabric to register with any more."""
    return gpu_values(healthy, "all", fabric__state="NOT_SUPPORTED")


def fabric_refused(healthy: Healthy, want: OneGpu) -> Patch:
    """The registration of a GPU with its fabric ended with an error: insufficient resources.

    `gpu`.
    """
    return gpu_values(healthy, want.gpu, fabric__status="INSUFFICIENT_RESOURCES")


def fabric_misconfigured(healthy: Healthy, want: OneGpu) -> Patch:
    """The fabric reports that a GPU has too few NVLinks for its configuration.

    `gpu`.
    """
    mask = hex(NO_FAULT & 0xFF | INSUFFICIENT_NVLINKS)
    return gpu_values(healthy, want.gpu, fabric__health_mask=mask)


class InforomVersion(OneGpu):
    version: Annotated[str, Field(pattern=r"^[0-9A-Za-z.-]{1,32}$")] = "G520.0200.00.02"


def inforom_other(healthy: Healthy, want: InforomVersion) -> Patch:
    """A GPU has another InfoROM image than the others.

    `gpu`; `version`, G520.0200.00.02.
    """
    return gpu_values(healthy, want.gpu, inforom_image_version=want.version)


class AerCount(OneGpu):
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1


def aer_nonfatal(healthy: Healthy, want: AerCount) -> Patch:
    """A GPU's link has uncorrected errors that were not fatal (CmpltTO), by its AER counters.

    `gpu`; `count`, 1.
    """
    return _aer(healthy, want, "nonfatal", "CmpltTO")


def aer_fatal(healthy: Healthy, want: AerCount) -> Patch:
    """A GPU's link has fatal errors (DLP), by its AER counters.

    `gpu`; `count`, 1.
    """
    return _aer(healthy, want, "fatal", "DLP")


def _aer(healthy: Healthy, want: AerCount, name: str, kind: str) -> Patch:
    gpu = healthy.gpu(want.gpu)
    path = f"{healthy.place(gpu)}/aer_dev_{name}"
    if path not in healthy.files:
        raise FaultError(f"GPU {gpu} has no aer_dev_{name}")
    return Patch({path: aer_text(name, {kind: want.count})}, gpu=gpu)


def gpu_unlisted(healthy: Healthy, want: OneGpu) -> Patch:
    """The driver did not bring a GPU up: PCI and /dev list it, but NVML lists one GPU less.

    `gpu`. The GPUs after it move up in NVML's order. The kernel log says so 3 s after boot.
    """
    gpu = healthy.gpu(want.gpu)
    healthy.place(gpu)
    line = f"NVRM: GPU {healthy.address(gpu)}: RmInitAdapter failed! (0x24:0x56:1436)"
    return Patch(unlisted=frozenset((gpu,)), log=(LogLine(line, 3.0, 3),))


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "aer-fatal": (AerCount, aer_fatal),
    "aer-nonfatal": (AerCount, aer_nonfatal),
    "braked-earlier": (BrakeSeconds, braked_earlier),
    "capped-earlier": (SlowedSeconds, capped_earlier),
    "clique-other": (OtherClique, clique_other),
    "domain-lost": (NoParams, domain_lost),
    "domain-other": (OtherDomain, domain_other),
    "domain-recovery": (OneGpu, domain_recovery),
    "ecc-corrected": (EccErrors, ecc_corrected),
    "ecc-pending": (OneGpu, ecc_pending),
    "ecc-sram-corrected": (EccErrors, ecc_sram_corrected),
    "ecc-sram-uncorrected": (SramErrors, ecc_sram_uncorrected),
    "ecc-uncorrected-earlier": (SramErrors, ecc_uncorrected_earlier),
    "fabric-lost": (NoParams, fabric_lost),
    "fabric-misconfigured": (OneGpu, fabric_misconfigured),
    "fabric-refused": (OneGpu, fabric_refused),
    "gpu-board-other": (OtherSubsystem, gpu_board_other),
    "gpu-clock-other": (LowerClock, gpu_clock_other),
    "gpu-default-limit-other": (LowerDefault, gpu_default_limit_other),
    "gpu-generation-other": (LowerGeneration, gpu_generation_other),
    "gpu-memory-clock-other": (LowerClock, gpu_memory_clock_other),
    "gpu-memory-hot": (MemoryMargin, gpu_memory_hot),
    "gpu-reset-required": (ClearedGpu, reset_required),
    "gpu-unlisted": (OneGpu, gpu_unlisted),
    "gsp-off": (OneGpu, gsp_off),
    "inforom-other": (InforomVersion, inforom_other),
    "memory-clock-lowered": (MemoryClock, memory_clock_lowered),
    "memory-unrepairable": (OneGpu, memory_unrepairable),
    "mig-on": (OneGpu, mig_on),
    "nvlink-bit-errors": (LinkBitErrors, nvlink_bit_errors),
    "nvlink-data-errors": (LinkCrcErrors, nvlink_data_errors),
    "nvlink-recoveries": (LinkCrcErrors, nvlink_recoveries),
    "nvlink-replays": (LinkCrcErrors, nvlink_replays),
    "nvlink-symbol-errors": (LinkBitErrors, nvlink_symbol_errors),
    "pages-pending": (ClearedGpu, pages_pending),
    "pcie-replays": (Replays, replays),
    "power-brake": (OneGpu, power_brake),
    "power-limit-held": (HeldLimit, power_limit_held),
    "recovery-needed": (AskedAction, recovery_needed),
    "row-remap-failed": (OneGpu, row_remap_failed),
    "rows-remapped": (RemappedRows, rows_remapped),
    "slowed-earlier": (SlowedSeconds, slowed_earlier),
    "software-slowdown": (OneGpu, software_slowdown),
    "spare-rows-used": (SpareRows, spare_rows_used),
    "sram-threshold": (OneGpu, sram_threshold),
    "tpc-repair-pending": (ClearedGpu, tpc_repair_pending),
}
