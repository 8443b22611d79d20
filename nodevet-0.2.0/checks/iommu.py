"""The IOMMU translates for GPUs and NICs as the baseline says.

**Why it matters.** On bare metal, translation costs every DMA a lookup and every mapping a flush,
and GPUDirect through a translating IOMMU is slow or fails. Hosts of virtual machines cannot do
without it. Linux's default depends on the distribution, the BIOS and the architecture.

**Read from** the IOMMU group of each GPU and NIC, `/sys/bus/pci/devices/*/iommu_group` and
`/sys/kernel/iommu_groups/*/type` (Linux 5.11).

**Verdicts.** `identity` is what iommu=pt gives: devices use physical addresses. `DMA` translates
and flushes at once; `DMA-FQ` translates and flushes later. `disabled`: the function is in no group,
as without an IOMMU. GPUs that are reserved for virtual machines (vfio-pci) are not judged.

**To fix it** on the kernel's command line: `iommu=pt` for identity; `intel_iommu=off` or
`amd_iommu=off` for none; `intel_iommu=on` where VMs need it. Then reboot.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, get_args

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import ok_if
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.pci_settings import READS, PciSetting, each_setting, subject_of
from nodevet.model import Area, Check, CheckParams, Finding, unknown

NO_GROUP = -1
DISABLED = "disabled"
TYPES = ("identity", "DMA", "DMA-FQ", "auto", "blocked", "unmanaged")
ADVICE = (
    "set it on the kernel's command line (iommu=pt for identity, intel_iommu=off or "
    "amd_iommu=off for none) and reboot; `cat /proc/cmdline` shows the current setting, but the "
    "BIOS may override it"
)


Mode = Literal["disabled", "identity", "DMA", "DMA-FQ"]


class Params(CheckParams):
    """`iommu: {one_of: [disabled, identity]}`"""

    bare: ClassVar[str] = "one_of"

    one_of: Annotated[
        tuple[Mode, ...],
        Meta(min_length=1),
    ]
    of: Annotated[tuple[Literal["gpu", "nic", "nvme"], ...], Meta(min_length=1)] = (
        "gpu",
        "nic",
    )
    ignore: tuple[str, ...] = ()
    """Drivers or addresses of functions that are not judged."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for setting in each_setting(evidence, params.of, params.ignore):
        yield setting if isinstance(setting, Finding) else judge_function(setting, params)


def judge_function(setting: PciSetting, params: Params) -> Finding:
    subject = subject_of(setting)
    if setting.iommu_group is None:
        return unread(subject, setting, "iommu_group")
    if setting.iommu_group == NO_GROUP:
        actual = DISABLED
    elif setting.iommu_type is None:
        return unread(subject, setting, "iommu_type")
    elif setting.iommu_group < 0 or setting.iommu_type not in TYPES:
        return unknown(subject, why=f"iommu_type: {setting.iommu_type[:60]}")
    else:
        actual = setting.iommu_type
    right, expected = actual in params.one_of, " or ".join(params.one_of)
    return ok_if(right, subject, expected=expected, actual=actual, advice=ADVICE)


def learn(evidence: Evidence) -> list[str] | None:
    settings = [
        setting
        for setting in each_setting(evidence, ("gpu", "nic"))
        if isinstance(setting, PciSetting)
    ]
    types = {
        DISABLED if setting.iommu_group == NO_GROUP else setting.iommu_type for setting in settings
    }
    return sorted(map(str, types)) if types and types <= {*get_args(Mode)} else None


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(*READS, *reads_of("pci_settings.functions[]", "driver", "iommu_group", "iommu_type")),
    judge=judge,
    unasked="bare metal and hosts of virtual machines differ: say iommu: [identity]",
    asks=lambda params: {"pci_settings": ("iommu",)},
    learn=learn,
)
