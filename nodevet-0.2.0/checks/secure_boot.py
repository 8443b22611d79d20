"""Secure boot is on or off, as the baseline expects.

**Why it matters.** With secure boot the kernel refuses modules that no enrolled key has signed: it
does not load a driver that DKMS built, and the node has no GPUs. Where secure boot is required, a
firmware reset silently turns it off.

**Read from** /sys/firmware/efi/efivars/SecureBoot-*.

**Verdicts.** If a node booted without UEFI, secure boot is off. If efivarfs is not mounted, as in
most containers, it is unknown.

**To fix it** change it in the firmware's settings, or by Redfish. To keep it on with DKMS, enrol
its key: `mokutil --import /var/lib/dkms/mok.pub`, then reboot and confirm at the console.
"""

from typing import ClassVar

from nodevet.checking.one_value import itself, node_value, ok_if
from nodevet.evidence.modules import Modules
from nodevet.model import Area, CheckParams, Finding

ADVICE = "change it in the firmware's settings; if it is on, a MOK must sign the modules"


class Params(CheckParams):
    """`secure_boot: false`"""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def judge(params: Params, actual: bool) -> Finding:
    right = actual == params.enabled
    return ok_if(right, expected=params.enabled, actual=actual, advice=ADVICE)


CHECK = node_value(
    Params,
    Modules,
    "secure_boot",
    judge=judge,
    learn=itself,
    area=Area.KERNEL,
    unasked="each site chooses on or off: write secure_boot: false",
)
