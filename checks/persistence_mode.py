"""Every GPU has persistence mode on or off, as expected.

**Why it matters.** If persistence mode is off, the driver unloads a GPU's state when its last
client exits. The next job waits seconds for initialisation, and settings in that state (power
limit, locked clocks, compute mode) silently return to their defaults.

**Read from** NVML, nvmlDeviceGetPersistenceMode. Only the fix reads `systemctl show` of
nvidia-persistenced and of nodevet's own unit: no verdict depends on them.

**To fix it** enable the nvidia-persistenced service (`systemctl enable --now
nvidia-persistenced`). `nvidia-smi -i BUS_ID -pm 1` alone is lost at the next reboot.
"""

from typing import ClassVar

from nodevet.checking.one_value import gpu_value, usual_of
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import CheckParams, Finding, Severity, compare


class Params(CheckParams):
    """`persistence_mode: true`"""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def judge(gpu: Gpu, params: Params) -> Finding:
    return compare(subject_of(gpu), expected=params.enabled, actual=gpu.persistence_mode)


CHECK = gpu_value(
    Params,
    "persistence_mode",
    judge=judge,
    learn=usual_of("persistence_mode"),
    unasked="for servers: on a workstation the display keeps the driver loaded",
    severity=Severity.WARNING,
)
