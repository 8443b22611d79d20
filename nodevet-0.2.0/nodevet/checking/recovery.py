"""The remedies for GPU faults, and which of them the driver itself asks for.

The driver reports the recovery action in two ways: as a number in an Xid 154, and in NVML's field
NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, whose constants (nvml.h) name the numbers.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from nodevet.model import NeededAction

RESET_IT = "reset the GPU with no job left, or reboot"
REPORT = "drain the node and run nvidia-bug-report.sh"  # a reset deletes this information


class Remedy(Enum):
    """What to do, the most urgent first."""

    POWER = (
        f"{REPORT}, then power it off and on: a reset does not reach the GPU. If it comes back, "
        "look at its power cable and riser and reseat it; attach the report and these lines to "
        "the RMA"
    )
    REBOOT = (
        f"{REPORT}, then reboot: a reset of the GPU is not enough. If it comes back, have the GPU "
        "replaced; attach the report and these lines to the RMA"
    )
    RESET = (
        f"{REPORT}, then {RESET_IT}. If it comes back, have the GPU replaced; attach the report "
        "and these lines to the RMA"
    )
    LINK = (
        f"{REPORT}, then reset all GPUs and NVSwitches together, or reboot: one GPU alone is not "
        "reset here. If it comes back, reseat the GPU if it is a module, otherwise suspect "
        "the baseboard"
    )
    SYSTEM = (
        f"{REPORT}, then reboot; if it comes back, update the driver and the firmware, and send "
        "the report to the vendor"
    )
    PEERS = (
        "end the jobs that use NVLink peers of this GPU, and read its recovery action again: the "
        "driver names the next step then"
    )
    DOMAIN = (
        "the GPU itself needs no reset: end the jobs of its NVLink domain, then restart "
        "nvidia-imex on all nodes of the domain; if it stays, run nvidia-bug-report.sh on each"
    )
    SUPPORT = (
        "note which job ran; if it comes back after a reset, send nvidia-bug-report.sh's output "
        "and these lines to the vendor"
    )
    JOB = (
        "suspect the job first; if other jobs get it on this GPU too, drain the node and run "
        "`dcgmi diag -r 3` on it"
    )
    NOTHING = "nothing: it is for information"

    @property
    def rank(self) -> int:
        """0 is the most urgent."""
        return list(Remedy).index(self)


ACTIONS: Mapping[str, NeededAction] = {
    Remedy.POWER.value: NeededAction.POWER_CYCLE,
    Remedy.REBOOT.value: NeededAction.REBOOT,
    Remedy.RESET.value: NeededAction.GPU_RESET,
    Remedy.LINK.value: NeededAction.GPU_RESET,
    Remedy.SYSTEM.value: NeededAction.REBOOT,
    **{other.value: NeededAction.SITE for other in (Remedy.PEERS, Remedy.DOMAIN)},
}
"""For `Check.actions`: what a failure with the text of a remedy needs."""


class Recovery(NamedTuple):
    """A recovery action of the driver."""

    number: int
    name: str  # NVML_GPU_RECOVERY_ACTION_*
    remedy: Remedy


NONE, IMEX_DOMAIN = "NONE", "RECOVER_IMEX_DOMAIN"
RECOVERIES = (
    Recovery(0, NONE, Remedy.NOTHING),
    Recovery(1, "GPU_RESET", Remedy.RESET),
    Recovery(2, "NODE_REBOOT", Remedy.REBOOT),
    Recovery(3, "DRAIN_P2P", Remedy.PEERS),
    Recovery(4, "DRAIN_AND_RESET", Remedy.RESET),
    Recovery(5, IMEX_DOMAIN, Remedy.DOMAIN),
    Recovery(6, "BUS_RESET", Remedy.REBOOT),
    Recovery(7, "SYSTEM_REBOOT", Remedy.POWER),
)
BY_NUMBER = {recovery.number: recovery.remedy for recovery in RECOVERIES}
BY_NAME = {recovery.name: recovery.remedy for recovery in RECOVERIES}
