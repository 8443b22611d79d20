"""Every GPU has persistence mode on or off, as expected.

**Why it matters.** With persistence mode off, the driver unloads a GPU's state when its last
client leaves. The next job waits seconds for initialisation, and settings that live in that state
(power limit, locked clocks, compute mode) fall back to their defaults silently.

**Read from** NVML, nvmlDeviceGetPersistenceMode. `systemctl show` of nvidia-persistenced and of
nodevet's own unit, for the fix alone: no verdict depends on them.

**To fix it** enable the nvidia-persistenced service (`systemctl enable --now
nvidia-persistenced`). `nvidia-smi -pm 1` alone is lost at the next reboot.
"""

from collections.abc import Iterator
from typing import ClassVar

from nodevet.checking.learning import usual
from nodevet.evidence.across import IN_HAND, answering, each_gpu
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import subject_of
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Value, compare


class Params(CheckParams):
    """`persistence_mode: true`"""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        elif gpu.persistence_mode is None:
            yield unread(subject_of(gpu), gpu, "persistence_mode")
        else:
            yield compare(subject_of(gpu), expected=params.enabled, actual=gpu.persistence_mode)


def learn(evidence: Evidence) -> Value:
    return usual(gpu.persistence_mode for gpu in answering(evidence))


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*IN_HAND, "gpu.gpus[].persistence_mode"),
    judge=judge,
    unasked="for servers: on a workstation the display keeps the driver loaded",
    learn=learn,
    severity=Severity.WARNING,
)
