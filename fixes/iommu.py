"""Let devices use physical addresses (iommu=pt), or turn the IOMMU off, from the next boot on.

**Now** nothing: the kernel sets up the IOMMU when it boots. The step is pending until the node
reboots; with `--reboot`, nodevet reboots it and reverts the step if the check does not pass.

**At every boot** `/etc/default/grub.d/zz-nodevet-iommu.cfg` adds `iommu=pt` if `identity` is
expected and the IOMMU translates. If only `disabled` is expected, it adds `intel_iommu=off` or
`amd_iommu=off`, by the vendor of the CPU. The fix of `kernel_cmdline` says how nodevet writes
GRUB's menu, and how the entries without its parameters can be booted.

**Risk** reboot.

**Rollback** restores the files and runs `update-grub` again; it takes effect at the next boot.

**What it cannot do.** If the kernel has no IOMMU and one is expected, the BIOS or `intel_iommu=`
decides: look at VT-d or AMD-Vi in the firmware's set-up. It does not make an IOMMU translate, and
does not choose between `DMA` and `DMA-FQ`. The BIOS may override the command line; then the check
fails after the reboot, and nodevet reverts the step. What the fix of `kernel_cmdline` cannot do,
this one cannot do either.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.iommu import DISABLED, Params
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.fixing.cmdline import ASKS, NOTE, boot_words
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding

IDENTITY, TRANSLATES = "identity", ("DMA", "DMA-FQ")
OFF = {"GenuineIntel": "intel_iommu=off", "AuthenticAMD": "amd_iommu=off"}


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for the node; see `FIX`."""
    actual = sorted({str(finding.actual) for finding in failed})
    words = (word_of(actual, params, evidence),)
    boot = boot_words("iommu", evidence, words, words)
    yield PlannedChange(
        expected=failed[0].expected,
        actual=", ".join(actual),
        subjects=tuple(finding.subject.label for finding in failed),
        actions=boot.actions,
        resources=boot.resources,
        risk=Risk.REBOOT,
        effective="reboot",
        note=NOTE,
    )


def word_of(actual: Sequence[str], params: Params, evidence: Evidence) -> str:
    """The parameter that gives what is expected. Raises FixError if none surely does."""
    if IDENTITY in params.one_of and set(actual) <= {*TRANSLATES}:
        return "iommu=pt"
    if params.one_of == (DISABLED,):
        cpu = evidence[Cpu].data
        vendor = (cpu.vendor if cpu else None) or ""
        if vendor not in OFF:
            raise FixError("only CPUs of Intel and AMD have a parameter for that")
        return OFF[vendor]
    if DISABLED in actual:
        raise FixError("a device has no IOMMU: see VT-d or AMD-Vi in the firmware's set-up")
    raise FixError("nodevet adds iommu=pt or turns the IOMMU off, and chooses no other mode")


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """The boot loader, and the vendor of the CPU."""
    return {**ASKS, "cpu": ()}


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=("numa_binding",), asks=asks)
