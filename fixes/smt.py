"""Turn SMT (Hyper-Threading) on or off, now and at every boot.

**Now** nodevet writes `on` or `off` to `/sys/devices/system/cpu/smt/control`. The kernel brings the
second thread of each core online, or takes it offline.

**At every boot** if SMT must be off, `/etc/default/grub.d/zz-nodevet-smt.cfg` adds the kernel
parameter `nosmt`. If SMT must be on, the fix removes this file again. With `--reboot`, GRUB boots
the new command line once before it is the default. `nodevet explain
kernel_cmdline` describes how nodevet writes GRUB's menu, and how to boot an entry without its
parameters.

**Risk** drain: CPUs of running jobs may disappear. slurmd reads the number of CPUs when it starts:
restart it afterwards.

**Rollback** restores the files, runs `update-grub` again, and writes the earlier value to the
control file.

**What it cannot do.** If the firmware turned SMT off (`notsupported`), only the firmware's set-up
can turn it on. If the control file says `forceoff`, remove `nosmt=force` from the command line and
reboot. If another file of GRUB has `nosmt`, nodevet names the file and the line. If another program
writes the control file at boot, disable that program first. CPUs that come online may lack what
other fixes set, such as a governor: plan again afterwards. The limits of the fix of
`kernel_cmdline` also apply here. No test has turned SMT of real CPUs on or off.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.kernel_cmdline import parameters
from nodevet.checks.smt import ADVICE, Params
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fixing.cmdline import ASKS, BootWords, boot_words, check_own_parameter
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Resource
from nodevet.resource.kernel import WriteKernel

CONTROL = "/sys/devices/system/cpu/smt/control"
NOSMT = "nosmt"


def plan(
    evidence: Evidence, failed: Sequence[Finding], params: Params, *, reboot: bool
) -> Iterator[PlannedChange]:
    """One change for the node; see `FIX`."""
    cpu = evidence[Cpu].data
    control = cpu.smt_control if cpu else None
    if control not in ("on", "off"):
        raise FixError(ADVICE.get(control or "", f"nodevet cannot change it: {str(control)[:40]}"))
    boot = at_boot(evidence, params.enabled, reboot)
    write = WriteKernel(path=CONTROL, value="on" if params.enabled else "off")
    yield PlannedChange(
        expected=failed[0].expected,
        actual=failed[0].actual,
        subjects=tuple(finding.subject.label for finding in failed if finding.subject.label),
        actions=(*(boot.actions if boot else ()), write),
        keep=boot.keep if boot else (),
        resources=(
            *(boot.resources if boot else ()),
            Resource(kind="kernel", name=CONTROL),
        ),
        risk=Risk.DRAIN,
        note=boot.note if boot else "",
    )


def at_boot(evidence: Evidence, enabled: bool, reboot: bool) -> BootWords | None:
    """What keeps it so at every boot; None if the command line is right. Raises FixError."""
    host = evidence[HostInfo].data
    if host is None or host.cmdline is None:
        raise FixError("nodevet could not read the kernel's command line")
    if (NOSMT in parameters(host.cmdline)) is not enabled:
        return None
    if not enabled:
        return boot_words("smt", evidence, (NOSMT,), (NOSMT,), reboot=reboot)
    check_own_parameter("smt", evidence, NOSMT)
    return boot_words("smt", evidence, (), (), reboot=reboot)


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """The boot loader, and its settings."""
    return ASKS


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("kernel_cmdline",), asks=asks, options=("reboot",))
