"""Let devices use physical addresses (iommu=pt), or turn the IOMMU off, from the next boot on.

**Now** nothing: the kernel sets up the IOMMU when it boots. The step is `pending` until the node
reboots. With `--reboot`, GRUB boots the new command line once; it becomes the default after the
check has passed.

**At every boot** `/etc/default/grub.d/zz-nodevet-iommu.cfg` adds a kernel parameter: `iommu=pt` if
the baseline expects `identity` and the IOMMU translates; `intel_iommu=off` or `amd_iommu=off`, by
the vendor of the CPU, if the baseline expects only `disabled`. `nodevet explain kernel_cmdline`
describes how nodevet writes GRUB's menu, and how to boot an entry without its parameters.

**Risk** reboot.

**Rollback** restores the files and runs `update-grub` again; it takes effect at the next boot.

**What it cannot do.** It does not turn the IOMMU on: enable VT-d or AMD-Vi in the firmware's
set-up, and look for `intel_iommu=` on the kernel's command line. It does not make an IOMMU
translate, and does not choose between `DMA` and `DMA-FQ`. The BIOS may override the command line;
then the check fails after the reboot, and nodevet reverts the step. The limits of the fix of
`kernel_cmdline` also apply here. No test has seen this fix take effect: that needs a real
IOMMU.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.iommu import DISABLED, Params
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.fixing.cmdline import ASKS, boot_words
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding

IDENTITY, TRANSLATES = "identity", ("DMA", "DMA-FQ")
OFF = {"GenuineIntel": "intel_iommu=off", "AuthenticAMD": "amd_iommu=off"}


def plan(
    evidence: Evidence, failed: Sequence[Finding], params: Params, *, reboot: bool
) -> Iterator[PlannedChange]:
    """One change for the node; see `FIX`."""
    actual = sorted({str(finding.actual) for finding in failed})
    words = (word_of(actual, params, evidence),)
    boot = boot_words("iommu", evidence, words, words, reboot=reboot)
    yield PlannedChange(
        expected=failed[0].expected,
        actual=", ".join(actual),
        subjects=tuple(finding.subject.label for finding in failed),
        actions=boot.actions,
        keep=boot.keep,
        resources=boot.resources,
        risk=Risk.REBOOT,
        effective="reboot",
        note=boot.note,
    )


def word_of(actual: Sequence[str], params: Params, evidence: Evidence) -> str:
    """The parameter that gives what is expected. Raises FixError if nodevet knows none."""
    if IDENTITY in params.one_of and set(actual) <= {*TRANSLATES}:
        return "iommu=pt"
    if params.one_of == (DISABLED,):
        cpu = evidence[Cpu].data
        vendor = (cpu.vendor if cpu else None) or ""
        if vendor not in OFF:
            raise FixError("nodevet knows the parameter only for CPUs of Intel and AMD")
        return OFF[vendor]
    if DISABLED in actual:
        raise FixError("a device has no IOMMU: enable VT-d or AMD-Vi in the firmware's set-up")
    raise FixError("nodevet only adds iommu=pt or turns the IOMMU off; it sets no other mode")


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """The boot loader, and the vendor of the CPU."""
    return {**ASKS, "cpu": ()}


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=("numa_binding",), asks=asks, options=("reboot",))
