"""The kernel keeps time by a clock that is cheap to read.

**Why it matters.** CUDA, NCCL and every profiler read the clock all the time. By the CPU's own
counter that takes 20 ns without a system call; by HPET or the ACPI timer it takes a microsecond and
more, and one CPU at a time. The kernel falls back to them at run time if it finds the counter
unstable, and says so only in its log.

**Read from** `current_clocksource` and `available_clocksource` in
`/sys/devices/system/clocksource/clocksource0`.

**Verdicts.** `tsc` is right on x86, `arch_sys_counter` on Arm; in a virtual machine so is the clock
of its hypervisor: kvm-clock, Hyper-V's TSC page, Xen's. `hpet`, `acpi_pm`, `pit`, `jiffies` and
Hyper-V's MSR fail. Any other is unknown, unless the baseline names it.

**To fix it** `dmesg | grep -i clocksource` says why the counter was given up. If it is still
available, writing `tsc` to `current_clocksource` holds until the next boot.
"""

from collections.abc import Iterator

from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel import Kernel
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    ok,
    unknown,
)

CHEAP = (
    "tsc",
    "arch_sys_counter",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "xen",
    "timebase",
)
DEAR = (
    "hpet",
    "acpi_pm",
    "pit",
    "jiffies",
    "refined-jiffies",
    "hyperv_clocksource_msr",
    "hyperv_clocksource",
)
GIVEN_UP = (
    "the kernel no longer trusts the CPU's counter: `dmesg | grep -i clocksource` says why. Update "
    "the BIOS; if the sockets' counters are known to agree, boot with tsc=reliable"
)
STILL_THERE = (
    "tsc is available: look for clocksource= on the kernel's command line, and write tsc to "
    "/sys/devices/system/clocksource/clocksource0/current_clocksource"
)


class Params(CheckParams):
    """`clocksource: {}` or `clocksource: {one_of: [tsc]}`"""

    one_of: tuple[str, ...] = ()
    """As the kernel names them; without it, every one that is cheap to read."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Kernel]
    if section.data is None:
        yield unknown(why=f"kernel: {section.why}")
        return
    current = section.data.clocksource
    if not current:
        yield unread(NODE, section.data, "clocksource")
        return
    wanted = params.one_of or CHEAP
    expected = " or ".join(params.one_of) if params.one_of else "a cheap one"
    if current in wanted:
        yield ok(expected=expected, actual=current)
    elif params.one_of or current in DEAR:
        there = "tsc" in (section.data.clocksources or ())
        yield fail(expected=expected, actual=current, advice=STILL_THERE if there else GIVEN_UP)
    else:
        yield unknown(why=f"{current[:60]}: not known how long it takes to read; name it in one_of")


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=("kernel.clocksource",),
    judge=judge,
    severity=Severity.WARNING,
)
