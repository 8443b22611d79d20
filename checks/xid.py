"""The driver has logged no Xid since boot that points to faulty hardware.

**Why it matters.** An Xid in the kernel log is often the only trace of a GPU that hung, lost
memory rows or dropped a link: the job died, the GPU was reset, every other reading is fine again,
and the next job will die on it too.

**Read from** the kernel log since boot: /dev/kmsg, and the journal if the ring buffer no
longer reaches back to boot. Only lines that the kernel itself wrote count.

**Verdicts.** `ignore` names the Xids that an application causes by itself; they are shown, and
are not a fault. Every other one fails, a number that nodevet does not know too. A GPU that fell
off the bus is one loss, however many lines say so; a line that does not say of which GPU belongs
to the one that has Xid 79, or that alone is lost. A GPU without Xids is ok only if the log has no
gap. One whose beginning alone is gone (a volatile journal, a ring buffer that was overwritten) is
judged for what it covers, and the finding says since when; unknown if that is less than an hour
and less than what is gone, and for a GPU that is lost. An SXid (NVSwitch) fails unless the driver
calls it non-fatal; then it is not applicable, and shown. Captured files without a kernel log are
not applicable.

**To fix it** follow the advice, which is for the worst Xid. The log is empty again after a
reboot, the fault may not be: run NVIDIA's field diagnostics or `dcgmi diag -r 3` before the node
gets jobs again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET
from pydantic import Field

from nodevet.evidence.across import (
    IN_HAND,
    each_gpu,
    gpu_functions,
    located,
    logged,
    off_the_bus,
    unlisted,
)
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, lost, subject_of
from nodevet.evidence.host import HostInfo, at_uptime, boot_time
from nodevet.evidence.kernel_log import KernelEvent, KernelLog, coverage, line_of, span
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    fail,
    not_applicable,
    ok,
    unknown,
)

REPORT = "drain the node and run nvidia-bug-report.sh"  # what is gone after a reset
POWER = (
    f"{REPORT}, then power it off and on: a reset does not reach the GPU. If it comes back, look "
    "at its power cable and riser and reseat it; attach the report and these lines to the RMA"
)
RESET = (
    f"{REPORT}, then reset the GPU with no job left, or reboot. If it comes back, have the GPU "
    "replaced; attach the report and these lines to the RMA"
)
LINK = (
    f"{REPORT}, then reset all GPUs and NVSwitches together, or reboot: one GPU alone is not "
    "reset here. If it comes back, reseat the GPU if it is a module, otherwise suspect "
    "the baseboard"
)
SYSTEM = (
    f"{REPORT}, then reboot; if it comes back, update the driver and the firmware, and send the "
    "report to the vendor"
)
SUPPORT = (
    "note which job ran; if it comes back after a reset, send nvidia-bug-report.sh's output and "
    "these lines to the vendor"
)
JOB = (
    "suspect the job first; if other jobs get it on this GPU too, drain the node and run `dcgmi "
    "diag -r 3` on it"
)
SWITCH = (
    f"{REPORT}, then reset all GPUs and NVSwitches together, or reboot: a restart of "
    "nvidia-fabricmanager alone clears nothing. If it comes back, suspect the baseboard"
)

# Numbers and names of NVIDIA's Xid catalogue, the most urgent advice first.
CODES: dict[str, dict[int, str]] = {
    POWER: {
        79: "GPU_HAS_FALLEN_OFF_THE_BUS", 54: "SILENT_RUNNING_PWR_REDUCED_CLOCKING",
        167: "PCIE_FATAL_TIMEOUT", 168: "REDUCED_GPU_MEMORY_CAPACITY",
    },
    RESET: {
        48: "GPU_ECC_DBE", 64: "INFOROM_DRAM_RETIREMENT_FAILURE", 95: "UNCONTAINED_ERROR",
        140: "UNRECOVERABLE_ECC_ERROR_ESCAPE", 172: "UNCORRECTABLE_SRAM_ERROR",
        94: "CONTAINED_ERROR", 63: "INFOROM_DRAM_RETIREMENT_EVENT",
        156: "RESOURCE_RETIREMENT_EVENT", 157: "RESOURCE_RETIREMENT_FAILURE",
        92: "EXCESSIVE_SBE_INTERRUPTS", 46: "GPU_TIMEOUT_ERROR", 62: "PMU_HALT_ERROR",
        109: "CTXSW_TIMEOUT_ERROR", 110: "SEC_FAULT_ERROR", 143: "GPU_INIT_ERROR",
        154: "GPU_RECOVERY_ACTION_CHANGED", 158: "GPU_FATAL_TIMEOUT", 169: "SEC2_HALT_ERROR",
    },
    LINK: {
        74: "NVLINK_ERROR", 121: "C2C_ERROR", 136: "ALI_TRAINING_FAIL", 137: "NVLINK_PRIV_ERR",
        144: "NVLINK_SAW_ERROR", 145: "NVLINK_RLW_ERROR", 146: "NVLINK_TLW_ERROR",
        147: "NVLINK_TREX_ERROR", 148: "NVLINK_NVLPW_CTRL_ERROR", 149: "NVLINK_NETIR_ERROR",
        150: "NVLINK_MSE_ERROR", 155: "NVLINK_SW_DEFINED_ERROR",
        166: "NVLINK_SECURE_CRYPTO_ERR", 170: "NVLINK_SECURE_OTHER",
    },
    SYSTEM: {
        119: "GSP_RPC_TIMEOUT", 120: "GSP_ERROR", 78: "VGPU_START_ERROR",
        151: "KEY_ROTATION_ERROR", 159: "CHI_NON_DATA_ERROR",
    },
    SUPPORT: {
        9: "GR_ERROR_INSTANCE", 12: "GR_ERROR_SW_METHOD", 16: "VBLANK_CALLBACK_TIMEOUT",
        18: "BUS_MASTER_TIMEOUT_ERROR", 19: "DISP_MISSED_NOTIFIER",
        26: "FIFO_ERROR_FBISTATE_TIMEOUT", 27: "VP_ERROR", 28: "VP2_ERROR", 29: "BSP_ERROR",
        30: "BAD_ADDR_ACCESS", 33: "SEC_ERROR", 34: "MSVLD_ERROR", 35: "MSPDEC_ERROR",
        36: "MSPPP_ERROR", 38: "FECS_ERR_WATCHDOG_TIMEOUT", 42: "VIC_ERROR",
        44: "GR_FAULT_DURING_CTXSW", 47: "NVENC0_ERROR", 56: "DISPLAY_CHANNEL_EXCEPTION",
        57: "FB_LINK_TRAINING_FAILURE_ERROR", 58: "FB_MEMORY_ERROR", 59: "PMU_ERROR",
        60: "SEC2_ERROR", 61: "PMU_BREAKPOINT", 65: "NVENC1_ERROR", 70: "CE3_ERROR",
        71: "CE4_ERROR", 72: "CE5_ERROR", 73: "NVENC2_ERROR", 75: "CE6_ERROR", 76: "CE7_ERROR",
        77: "CE8_ERROR", 80: "PBDMA_PUSHBUFFER_CRC_MISMATCH", 81: "VGA_SUBSYSTEM_ERROR",
        82: "NVJPG0_ERROR", 83: "NVDEC1_ERROR", 84: "NVDEC2_ERROR", 85: "CE9_ERROR",
        86: "OFA0_ERROR", 88: "NVDEC3_ERROR", 89: "NVDEC4_ERROR", 96: "NVDEC5_ERROR",
        97: "NVDEC6_ERROR", 98: "NVDEC7_ERROR", 99: "NVJPG1_ERROR", 100: "NVJPG2_ERROR",
        101: "NVJPG3_ERROR", 102: "NVJPG4_ERROR", 103: "NVJPG5_ERROR", 104: "NVJPG6_ERROR",
        105: "NVJPG7_ERROR", 111: "BUNDLE_ERROR_EVENT", 112: "DISP_SUPERVISOR_ERROR",
        113: "DP_LT_FAILURE", 114: "HEAD_RG_UNDERFLOW", 115: "CORE_CHANNEL_REGS",
        116: "WINDOW_CHANNEL_REGS", 117: "CURSOR_CHANNEL_REGS", 118: "HEAD_REGS",
        122: "SPI_PMU_RPC_READ_FAIL", 123: "SPI_PMU_RPC_WRITE_FAIL",
        124: "SPI_PMU_RPC_ERASE_FAIL", 125: "INFOROM_FS_ERROR", 126: "CE10_ERROR",
        142: "NVENC3_ERROR", 162: "PSHC_REENGAGED", 163: "PSHC_DISENGAGED",
        164: "PSHC_LOW_LIFETIME", 165: "PSHC_ZERO_LIFETIME",
    },
    JOB: {
        13: "GR_EXCEPTION", 31: "FIFO_ERROR_MMU_ERR_FLT", 32: "PBDMA_ERROR",
        43: "RESETCHANNEL_VERIF_ERROR", 45: "PREEMPTIVE_REMOVAL", 68: "NVDEC0_ERROR",
        69: "GR_CLASS_ERROR",
    },
}  # fmt: skip

NAMES = {code: name for codes in CODES.values() for code, name in codes.items()}
LOSS = "gpu_lost"  # the check that tells of a GPU that is lost, whatever Xids say so too
OFF_BUS = 79  # what the driver also says without a number
Code = Annotated[int, Field(ge=1, le=65535)]


class Params(CheckParams):
    """`xid: {}` or `xid: {ignore: [13, 31, 43, 45, 63]}`"""

    ignore: Annotated[tuple[Code, ...], Field(strict=False)] = (13, 31, 32, 43, 45, 68, 69)
    """Numbers that are no fault here."""
    since: Literal["boot"] = "boot"


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    log = logged(evidence)
    if isinstance(log, Finding):
        yield log
    else:
        events = log.events or ()
        about_gpus = [event for event in events if event.kind in ("xid", "off_bus")]
        yield from judge_gpus(evidence, log, about_gpus, params)
        switches = [event for event in events if event.kind == "sxid"]
        yield from judge_switches(switches, boot_time(evidence[HostInfo].data))


def judge_gpus(
    evidence: Evidence, log: KernelLog, events: Sequence[KernelEvent], params: Params
) -> Iterator[Finding]:
    (doubt, since), gone = coverage(log), off_the_bus(evidence)
    gpus = located(evidence)
    at = by_address(events)
    join(evidence, gpus, at)
    booted = boot_time(evidence[HostInfo].data)
    nameless = fault(NODE, at.pop("", []), params, booted)
    if nameless:
        doubt = "an Xid names no GPU"
        yield nameless
    if not gpus:
        yield from (found for found in each_gpu(evidence) if isinstance(found, Finding))
    for gpu in gpus:
        before = since if lost(gpu) or gpu.bus_id in gone else ""
        why = f"it is lost, and the log covers only what happened {before}" if before else doubt
        events_of = at.get(gpu.bus_id or "", [])
        found = judge_gpu(gpu, events_of, params, why, since, booted)
        off = lost(gpu) or gpu.bus_id in gone
        yield msgspec.structs.replace(found, cause=LOSS) if off else found
    for address in sorted(at.keys() - {gpu.bus_id for gpu in gpus}):
        subject = Subject(kind="pci", id=address, bus_id=address)
        bad = fault(subject, at[address], params, booted, {"bus id": address})
        if bad:
            yield msgspec.structs.replace(bad, cause=LOSS) if address in gone else bad
    short = unlisted(evidence, at) if gpus else None
    if short is not None:
        yield short


def by_address(events: Sequence[KernelEvent]) -> dict[str, list[KernelEvent]]:
    """The events of each PCI address; those that name none under an empty one."""
    found: dict[str, list[KernelEvent]] = {}
    for event in events:
        found.setdefault(event.bus_id or "", []).append(event)
    return found


def join(evidence: Evidence, gpus: Sequence[Gpu], at: dict[str, list[KernelEvent]]) -> None:
    """Move lines that say "off the bus", and not of which GPU, to the one that is: the one that
    has the Xid of it, or else the only one that NVML or the PCI bus has lost."""
    spare = [event for event in at.get("", []) if event.kind == "off_bus"]
    where = {
        address
        for address, own in at.items()
        if any(event.kind == "xid" and event.code == OFF_BUS for event in own)
    }
    if not where and all(function.revision for function in gpu_functions(evidence)):
        where = {gpu.bus_id or "" for gpu in gpus if lost(gpu)} | off_the_bus(evidence)
    if len(where) == 1 and "" not in where and spare:
        at.setdefault(next(iter(where)), []).extend(spare)
        at[""] = [event for event in at[""] if event not in spare]


def judge_gpu(
    gpu: Gpu,
    events: list[KernelEvent],
    params: Params,
    doubt: str,
    since: str,
    booted: float | None,
) -> Finding:
    """`since`: what silence is about, where the log begins after boot."""
    subject = subject_of(gpu)
    found = fault(subject, events, params, booted, board(gpu))
    if found:
        return found
    if "handle" in gpu.errors:
        return unknown(subject, why=f"NVML: {gpu.why('handle')}")
    if gpu.bus_id is None:
        return unread(subject, gpu, "bus_id")
    if doubt:
        return unknown(subject, why=doubt)
    why = "; ".join(filter(None, (told(events, booted), since)))
    return ok(subject, expected=[], actual=[], why=why)


def number(event: KernelEvent) -> int | None:
    return OFF_BUS if event.kind == "off_bus" else event.code


def fault(
    subject: Subject,
    events: list[KernelEvent],
    params: Params,
    booted: float | None,
    details: Mapping[str, str] = {},
) -> Finding | None:
    """What is to be said against these Xids, if anything. `details`: what identifies the board."""
    codes = {number(event) for event in events}
    bad = sorted(code for code in codes if code is not None and code not in params.ignore)
    if bad:
        return fail(
            subject,
            expected=[],
            actual=bad,
            why=told(events, booted),
            advice=advice(bad),
            details={**details, **times_of(events, booted)},
            last=last_of(events, booted) or UNSET,
        )
    for event in events:
        if number(event) is None:
            return unknown(subject, why=f"an Xid line that cannot be read: {event.text}")
    return None


def advice(bad: Sequence[int]) -> str:
    """The advice of the worst of these numbers."""
    return next((text for text, codes in CODES.items() if set(bad) & set(codes)), SUPPORT)


def last_of(events: Sequence[KernelEvent], booted: float | None) -> str:
    """When the last of them was logged, ISO 8601; empty if that is not known."""
    seconds = latest(events)
    return "" if seconds is None else at_uptime(booted, seconds)


def times_of(events: Sequence[KernelEvent], booted: float | None) -> dict[str, str]:
    """Of each number, if there are several, when it was logged last."""
    codes = sorted({code for code in map(number, events) if code is not None})
    last = {code: last_of([e for e in events if number(e) == code], booted) for code in codes}
    return {f"Xid {code}": f"last {at}" for code, at in last.items() if at and len(codes) > 1}


def told(
    events: Sequence[KernelEvent], booted: float | None, names: Mapping[int, str] = NAMES
) -> str:
    """As `79 GPU_HAS_FALLEN_OFF_THE_BUS ×2; 13 ...`; with times after boot, if `booted`, the time
    of that, is not known."""
    parts = []
    by_code: dict[int, list[KernelEvent]] = {}
    for event in events:
        by_code.setdefault(number(event) or 0, []).append(event)
    unread = by_code.pop(0, [])
    for code, same in sorted(by_code.items()):
        name = names.get(code, "unknown to nodevet" if names else "")
        parts.append(f"{code} {name}".rstrip() + times(same) + when(same, booted))
    if unread:
        text = line_of(unread)
        shown = f": {text}" if text else ""
        parts.append(
            f"a line whose number cannot be read{times(unread)}{when(unread, booted)}{shown}"
        )
    return "; ".join(parts)


def times(same: Sequence[KernelEvent]) -> str:
    """How often, as ` ×2`. A loss has an Xid and further lines, which are no further loss."""
    counted = [event for event in same if event.kind != "off_bus"]
    if not counted:
        return " ×1"
    counts = [event.count for event in counted if event.count is not None]
    return f" ×{sum(counts)}" if counts else ""


def when(same: Sequence[KernelEvent], booted: float | None) -> str:
    seconds = latest(same)
    return "" if seconds is None or booted is not None else f", last {span(seconds)} after boot"


def latest(same: Sequence[KernelEvent]) -> float | None:
    """Of the last line, seconds after boot."""
    seconds = max((event.last_s for event in same if event.last_s is not None), default=None)
    return None if seconds is None or not 0 <= seconds < 1e10 else seconds


def judge_switches(events: Sequence[KernelEvent], booted: float | None) -> Iterator[Finding]:
    for address, own in sorted(by_address(events).items()):
        subject = Subject(kind="nvswitch", id=address, bus_id=address) if address else NODE
        serious = [event for event in own if event.severity != "nonfatal"]
        codes = sorted({event.code for event in serious if event.code is not None})
        why = told(own, booted, {})
        if codes:
            yield fail(
                subject,
                expected=[],
                actual=codes,
                why=f"SXid {why}",
                advice=SWITCH,
                last=last_of(serious, booted) or UNSET,
            )
        elif serious:
            yield unknown(subject, why=f"an SXid line that cannot be read: {serious[0].text}")
        else:
            yield not_applicable(subject, why=f"non-fatal according to the driver: SXid {why}")


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        "gpu.gpus[].bus_id",
        "pci.functions[].address",
        "pci.functions[].revision",
        "pci.functions[].driver",
        "kernel_log.complete",
        "kernel_log.covered_s",
        "kernel_log.since_s",
        "kernel_log.events[].bus_id",
        "kernel_log.events[].code",
        "kernel_log.events[].kind",
        "kernel_log.events[].severity",
    ),
    judge=judge,
)
