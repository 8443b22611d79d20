"""GPUDirect Storage is ready: nvidia-fs is loaded, or cuFile uses the kernel's P2PDMA.

**Why it matters.** Without either, cuFile falls back to copies through the host's memory
(compatibility mode), and only the throughput shows it.

**Read from** /sys/module/nvidia_fs, /proc/driver/nvidia-fs/stats, `use_pci_p2pdma` of
/etc/cufile.json and /proc/driver/nvidia/version.

**Verdicts.** `any` allows either way. P2PDMA needs NVIDIA's open kernel module. The node does not
show whether a file system takes part: `gdscheck -p` does.

**To fix it** install nvidia-fs (package nvidia-fs-dkms or nvidia-gds) and `modprobe nvidia-fs`; or
set `use_pci_p2pdma` in /etc/cufile.json if the driver (570 or later) and the kernel support it.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from nodevet.checking.named import of_section, reads_of
from nodevet.checking.one_value import first_unread
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpudirect import GpuDirect
from nodevet.evidence.modules import Modules
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, fail, ok, unknown

Mode = Literal["any", "nvidia_fs", "p2pdma"]
NODE = Subject()


class Params(CheckParams):
    """`gds: any` or `gds: nvidia_fs`"""

    bare: ClassVar[str] = "mode"

    mode: Mode = "any"


@of_section(GpuDirect, "GPUDirect")
def judge(gpudirect: GpuDirect, evidence: Evidence, params: Params) -> Iterator[Finding]:
    ways = [way for way in ("nvidia_fs", "p2pdma") if params.mode in ("any", way)]
    answers = [ANSWERS[way](evidence, gpudirect) for way in ways]
    expected = " or ".join(ways)
    unread_ways = [answer for answer in answers if isinstance(answer, Finding)]
    right = [way for way, answer in zip(ways, answers, strict=True) if answer == ""]
    if right:
        yield ok(expected=expected, actual=right[0])
    elif unread_ways:
        yield unread_ways[0]
    else:
        actual = "; ".join(str(answer) for answer in answers)
        yield fail(expected=expected, actual=actual, advice=ADVICE)


def by_module(evidence: Evidence, gpudirect: GpuDirect) -> Finding | str:
    """Why GPUDirect Storage does not work with nvidia-fs; empty if it does."""
    if finding := first_unread(NODE, gpudirect, "nvidia_fs", "nvidia_fs_stats"):
        return finding
    if not gpudirect.nvidia_fs:
        return "nvidia_fs is not loaded"
    return "" if gpudirect.nvidia_fs_stats else "nvidia_fs is loaded without /proc/driver/nvidia-fs"


def by_kernel(evidence: Evidence, gpudirect: GpuDirect) -> Finding | str:
    """Why GPUDirect Storage does not work with the kernel's P2PDMA; empty if it does."""
    modules = evidence[Modules]
    if gpudirect.p2pdma is None:
        return unread(NODE, gpudirect, "p2pdma")
    if not gpudirect.p2pdma:
        return "use_pci_p2pdma is not on"
    if modules.data is None:
        return unknown(why=f"modules: {modules.why}")
    if modules.data.nvidia_flavour is None:
        return unread(NODE, modules.data, "nvidia_flavour")
    is_open = modules.data.nvidia_flavour == "open"
    return "" if is_open else f"the kernel module is {modules.data.nvidia_flavour}"


ANSWERS = {"nvidia_fs": by_module, "p2pdma": by_kernel}
ADVICE = "`modprobe nvidia-fs`, and a file in /etc/modules-load.d; or use_pci_p2pdma, see the page"


def learn(evidence: Evidence) -> Any:
    gpudirect = evidence[GpuDirect].data
    if gpudirect is None:
        return None
    ways = [way for way, answer in ANSWERS.items() if answer(evidence, gpudirect) == ""]
    return ways[0] if ways else None


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        *reads_of("gpudirect", "nvidia_fs", "nvidia_fs_stats", "p2pdma"),
        "modules.nvidia_flavour",
    ),
    judge=judge,
    unasked="for nodes on which jobs use GPUDirect Storage",
    severity=Severity.WARNING,
    learn=learn,
)
