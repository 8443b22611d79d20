"""The remedy for each Xid, by its number and the GPU's architecture.

Numbers, names and actions come from NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors) and
from nverror.h. If the catalogue says to ignore an Xid that points to a fault, the remedy here is
the one for the fault.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from nodevet.checking.recovery import Remedy


class Cure(Enum):
    """What ends an Xid, the strongest first: a stronger cure also ends what a weaker one ends."""

    BOOT = "a reboot"
    RESET = "a reset of the GPU"
    LOAD = "a reload of the driver"


_NAMES: Mapping[Remedy, Mapping[int, str]] = {
    Remedy.POWER: {
        79: "GPU_HAS_FALLEN_OFF_THE_BUS", 54: "SILENT_RUNNING_PWR_REDUCED_CLOCKING",
        167: "PCIE_FATAL_TIMEOUT", 168: "REDUCED_GPU_MEMORY_CAPACITY",
    },
    Remedy.RESET: {
        48: "GPU_ECC_DBE", 64: "INFOROM_DRAM_RETIREMENT_FAILURE", 95: "UNCONTAINED_ERROR",
        140: "UNRECOVERABLE_ECC_ERROR_ESCAPE", 172: "UNCORRECTABLE_SRAM_ERROR",
        171: "UNCORRECTABLE_DRAM_ERROR", 94: "CONTAINED_ERROR",
        63: "INFOROM_DRAM_RETIREMENT_EVENT", 156: "RESOURCE_RETIREMENT_EVENT",
        157: "RESOURCE_RETIREMENT_FAILURE", 160: "CHANNEL_RETIREMENT_EVENT",
        161: "CHANNEL_RETIREMENT_FAILURE", 92: "EXCESSIVE_SBE_INTERRUPTS",
        46: "GPU_TIMEOUT_ERROR", 62: "PMU_HALT_ERROR", 109: "CTXSW_TIMEOUT_ERROR",
        110: "SEC_FAULT_ERROR", 143: "GPU_INIT_ERROR", 154: "GPU_RECOVERY_ACTION_CHANGED",
        158: "GPU_FATAL_TIMEOUT", 169: "SEC2_HALT_ERROR",
    },
    Remedy.LINK: {
        74: "NVLINK_ERROR", 108: "NVLINK_REMOTE_TRANSLATION_ERROR", 121: "C2C_ERROR",
        136: "ALI_TRAINING_FAIL", 144: "NVLINK_SAW_ERROR", 145: "NVLINK_RLW_ERROR",
        146: "NVLINK_TLW_ERROR", 147: "NVLINK_TREX_ERROR", 148: "NVLINK_NVLPW_CTRL_ERROR",
        149: "NVLINK_NETIR_ERROR", 150: "NVLINK_MSE_ERROR", 155: "NVLINK_SW_DEFINED_ERROR",
        166: "NVLINK_SECURE_CRYPTO_ERR", 170: "NVLINK_SECURE_OTHER",
        173: "C2C_FATAL_LINK_FAILURE",
    },
    Remedy.SYSTEM: {
        119: "GSP_RPC_TIMEOUT", 120: "GSP_ERROR", 78: "VGPU_START_ERROR",
        151: "KEY_ROTATION_ERROR", 159: "CHI_NON_DATA_ERROR",
    },
    Remedy.SUPPORT: {
        37: "FECS_ERR_UNIMP_FIRMWARE_METHOD", 51: "SILENT_RUNNING_STRESS_TEST_FAILURE",
        66: "FECS_ERR_REG_ACCESS_VIOLATION", 67: "FECS_ERR_VERIF_VIOLATION",
        152: "DLA_SMMU_ERROR", 153: "DLA_TIMEOUT",
        8: "GR_ERROR_TIMEOUT", 9: "GR_ERROR_INSTANCE", 12: "GR_ERROR_SW_METHOD",
        14: "FAKE_ERROR", 16: "VBLANK_CALLBACK_TIMEOUT",
        18: "BUS_MASTER_TIMEOUT_ERROR", 19: "DISP_MISSED_NOTIFIER",
        20: "MPEG_ERROR_SW_METHOD", 21: "ME_ERROR_SW_METHOD", 22: "VP_ERROR_SW_METHOD",
        26: "FIFO_ERROR_FBISTATE_TIMEOUT", 27: "VP_ERROR", 28: "VP2_ERROR", 29: "BSP_ERROR",
        30: "BAD_ADDR_ACCESS", 33: "SEC_ERROR", 34: "MSVLD_ERROR", 35: "MSPDEC_ERROR",
        36: "MSPPP_ERROR", 38: "FECS_ERR_WATCHDOG_TIMEOUT", 39: "CE0_ERROR", 40: "CE1_ERROR",
        41: "CE2_ERROR", 42: "VIC_ERROR",
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
        127: "CE11_ERROR", 128: "CE12_ERROR", 129: "CE13_ERROR", 130: "CE14_ERROR",
        131: "CE15_ERROR", 132: "CE16_ERROR", 133: "CE17_ERROR", 134: "CE18_ERROR",
        135: "CE19_ERROR", 138: "DLA_ERROR", 139: "OFA1_ERROR", 141: "FAST_PATH_ERROR",
        142: "NVENC3_ERROR", 162: "PSHC_REENGAGED", 163: "PSHC_DISENGAGED",
        164: "PSHC_LOW_LIFETIME", 165: "PSHC_ZERO_LIFETIME", 87: "NVTELEMETRY_DRIVER_REPORT",
        90: "LTC_ERROR", 93: "INFOROM_ERASE_LIMIT_EXCEEDED", 175: "MEMORY_SUBSYSTEM_ERROR",
        176: "PCIE_CORRECTABLE_ERROR_FAULT",
    },
    Remedy.JOB: {
        13: "GR_EXCEPTION", 31: "FIFO_ERROR_MMU_ERR_FLT", 32: "PBDMA_ERROR",
        43: "RESETCHANNEL_VERIF_ERROR", 45: "PREEMPTIVE_REMOVAL", 68: "NVDEC0_ERROR",
        69: "GR_CLASS_ERROR", 137: "NVLINK_PRIV_ERR", 11: "GR_ERROR_MISSING_HW",
        25: "GR_ILLEGAL_NOTIFY",
    },
    Remedy.NOTHING: {106: "SMBPBI_TEST_MESSAGE", 107: "SMBPBI_TEST_MESSAGE_SILENT"},
}  # fmt: skip
NAMES = {code: name for names in _NAMES.values() for code, name in names.items()}
_REMEDIES = {code: remedy for remedy, names in _NAMES.items() for code in names}
_BY_ARCHITECTURE: Mapping[tuple[str, int], Remedy] = {
    # on A100 a reset of the GPU does not end these
    ("AMPERE", 64): Remedy.REBOOT,
    ("AMPERE", 95): Remedy.REBOOT,
}
_LOADED_AGAIN = {38, 44, 46, 60, 62, 109, 119, 120, 158}
"""Xids of firmware that hangs, which a reload of the driver ends."""
TOLERATED = (11, 13, 25, 31, 32, 43, 45, 68, 69, 106, 107, 137)
"""Xids that an application, or a test of the BMC, causes by itself."""
MILD: Mapping[int, str] = {
    **dict.fromkeys((14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153,
                     157, 160, 161), "IGNORE"),
    **dict.fromkeys((8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80,
                     *range(82, 87), 88, 89, 94, *range(96, 106), *range(126, 136), 139),
                    "RESTART_APP"),
}  # fmt: skip
"""The immediate action of NVIDIA's catalogue, if it leaves the GPU as it is."""
NVLINK5 = range(144, 151)
"""Xids of Blackwell's NVLinks, whose lines name the unit and say whether the error is fatal."""
RECOVERY = 154
OFF_BUS = 79
FOLLOW_ALL = frozenset({13, 31, 43, 45, RECOVERY})
"""Xids that follow any fault: removed channels, jobs that die."""
_FOLLOW: Mapping[int, frozenset[int]] = {
    48: frozenset({63, 64, 92, 94, 95, 140, 171, 172}),
    64: frozenset({63, 92, 94, 95}),
    94: frozenset({63, 92}),
    95: frozenset({63, 64, 94}),
    62: frozenset({109, 119, 120}),
    119: frozenset({109, 120}),
    120: frozenset({109, 119}),
    74: frozenset({109, 137}),
    **dict.fromkeys(range(144, 151), frozenset({94, 137})),
}
_TAKE_ALL = frozenset({OFF_BUS, 167})
"""A GPU that no longer answers also causes all other Xids."""


def remedy_of(code: int, architecture: str = "") -> Remedy:
    known = _REMEDIES.get(code, Remedy.SUPPORT)
    return _BY_ARCHITECTURE.get((architecture, code), known)


def cure_of(code: int, architecture: str | None) -> Cure:
    """What ends an Xid. For an unknown architecture: what ends it on all. For an unknown number: a
    reset of the GPU."""
    known = {remedy for (_, own), remedy in _BY_ARCHITECTURE.items() if own == code}
    remedies = (
        known | {remedy_of(code)} if architecture is None else {remedy_of(code, architecture)}
    )
    if remedies & {Remedy.POWER, Remedy.REBOOT}:
        return Cure.BOOT
    if code not in NAMES:
        return Cure.RESET
    light = code in _LOADED_AGAIN or remedy_of(code) in (Remedy.SUPPORT, Remedy.JOB)
    return Cure.LOAD if light else Cure.RESET


def follows(code: int, root: int) -> bool:
    """Whether an Xid is a consequence of another one of the same GPU before it."""
    if code == root or code not in NAMES:
        return False
    if root in _TAKE_ALL:
        return remedy_of(code) is not Remedy.POWER
    return code in FOLLOW_ALL or code in _FOLLOW.get(root, frozenset())


def follows_soon(code: int, root: int) -> bool:
    """Whether it is a consequence only if it comes soon after the other one."""
    return root not in _TAKE_ALL and code not in FOLLOW_ALL


class LinkError(NamedTuple):
    """An Xid 144 to 150, decoded."""

    fatal: bool
    words: str  # the unit and the link, and why a link went down


_FATAL_BITS = {
    "SAW_MVB": 0x12, "RLW_CTRL": 0, "RLW_REMAP": 0xC0, "RLW_RSPCOL": 0x2, "RLW_RXPIPE": 0,
    "RLW_SRC_TRACK": 0x31, "RLW_TAGSTATE": 0x120002, "TLW_CTRL": 0x4, "TLW_RX": 0x4,
    "TLW_TX": 0x4, "TREX": 0, "NVLPW_CTRL": 0, "NVLPW": 0, "NETIR_BER_EVENT": 0,
}  # fmt: skip
"""Bits of ErrorStatus that need a reset of the GPU, by unit."""
_PIPE = re.compile(r"_PIPE[0-9]\Z")  # of a unit
_RXPIPE = ((0xFF, 0x86), (0x7FF, 0x4C2))
"""Masks of IntrInfo and the masked value if RLW_RXPIPE needs a reset: driver 575, and before."""
_MFDE = frozenset({1, 4, 5, 7})  # values of ErrorStatus of NETIR_MFDE_EVENT that need a reset
_ALWAYS = frozenset({"NETIR", "NETIR_INT", "MSE", "MSE_WATCHDOG"})  # units that always need a reset
_DOWN = {
    1: "a report to NVIDIA, if more than once a day", 2: "signal integrity of the link",
    4: "signal integrity of the link", 10: "signal integrity of the link",
    15: "software or a user brought it down", 16: "software, a user or signal integrity",
    17: "software or a user brought it down", 18: "software, a user or signal integrity",
    21: "its other end", 22: "software or a user brought it down",
    **dict.fromkeys(range(32, 38), "its other end"), 38: "software or a user brought it down",
    40: "the host", 42: "signal integrity, cable or heat", 43: "signal integrity, cable or heat",
}  # fmt: skip
"""Why a link went down, bits 25 to 20 of IntrInfo: where to look."""
NOT_A_FAULT = frozenset({38, 40})


def link_error(severity: str | None, detail: str | None) -> LinkError:
    """What an Xid 144 to 150 says: the driver's word for the severity, and `UNIT link N INTR
    STATUS`.

    >>> link_error("fatal", "NETIR_LINK_EVT link 1 0x021425c6 0x00000000").words
    'NETIR_LINK_EVT link 1: its other end'
    """
    if detail is None:
        return LinkError(True, "")
    words = detail.split()
    numbers = [int(word, 16) for word in words if word.startswith("0x") and _is_hex(word)]
    name = " ".join(word for word in words if not word.startswith("0x"))
    unit = words[0].split("/")[0] if words else ""
    fatal = severity != "nonfatal"
    if len(numbers) != 2:
        return LinkError(fatal, name)
    reason = numbers[0] >> 20 & 0x3F
    if unit.startswith("NETIR_LINK"):
        look = _DOWN.get(reason, "")
        return LinkError(fatal and reason not in NOT_A_FAULT, f"{name}: {look}" if look else name)
    return LinkError(fatal or needs_reset(unit, *numbers), name)


def needs_reset(unit: str, information: int, status: int) -> bool:
    """Whether IntrInfo and ErrorStatus of a unit need a reset of the GPU.

    >>> needs_reset("TLW_RX_PIPE1", 0xB, 0x4), needs_reset("TLW_CTRL", 0x9, 0x1)
    (True, False)
    """
    name = _PIPE.sub("", unit)
    if name == "RLW_RXPIPE":
        second = any(information & mask == value for mask, value in _RXPIPE)
        return second and bool(status & 0x7)
    if name == "NETIR_MFDE_EVENT":
        return status in _MFDE
    return name in _ALWAYS or bool(status & _FATAL_BITS.get(name, 0))


def _is_hex(word: str) -> bool:
    return len(word) <= 10 and all(letter in "0123456789abcdefABCDEF" for letter in word[2:])
