"""Secure boot is on, or off, as the baseline says.

**Why it matters.** With secure boot the kernel refuses modules that no enrolled key has signed: a
driver that DKMS built is not loaded, and the node has no GPUs. Where it is required, a firmware
reset silently turns it off.

**Read from** /sys/firmware/efi/efivars/SecureBoot-*.

**Verdicts.** A node that booted without UEFI has it off. While efivarfs is not mounted, as in most
containers, it is unknown.

**To fix it** in the firmware's settings, or by Redfish. To keep it on with DKMS, enrol its key:
`mokutil --import /var/lib/dkms/mok.pub`, then reboot and confirm at the console.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.modules import Modules
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, compare, unknown


class Params(CheckParams):
    """`secure_boot: false`"""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Modules]
    if section.data is None:
        yield unknown(why=f"modules: {section.why}")
    elif section.data.secure_boot is None:
        yield unread(Subject(), section.data, "secure_boot")
    else:
        actual = section.data.secure_boot
        advice = "" if actual == params.enabled else ADVICE
        yield compare(Subject(), expected=params.enabled, actual=actual, advice=advice)


ADVICE = "change it in the firmware's settings; with it on, modules need the signature of an MOK"


def learn(evidence: Evidence) -> Any:
    found = evidence[Modules].data
    return None if found is None else found.secure_boot


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=("modules.secure_boot",),
    judge=judge,
    unasked="on or off is a site's choice: say secure_boot: false",
    severity=Severity.WARNING,
    learn=learn,
)
