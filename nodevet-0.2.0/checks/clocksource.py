"""The kernel keeps time with a clock source that is cheap to read.

**Why it matters.** CUDA, NCCL and every profiler read the clock all the time. A read of the CPU's
own counter takes 20 ns and no system call; a read of HPET or the ACPI timer takes a microsecond or
more, and only one CPU can read at a time. The kernel falls back to them at run time if it finds the
counter unstable, and reports this only in its log.

**Read from** `current_clocksource` and `available_clocksource` in
`/sys/devices/system/clocksource/clocksource0`.

**Verdicts.** `tsc` is right on x86 and `arch_sys_counter` on Arm. In a virtual machine the clock of
its hypervisor is also right: kvm-clock, Hyper-V's TSC page, Xen's. `hpet`, `acpi_pm`, `pit`,
`jiffies` and Hyper-V's MSR fail. Any other clock source is unknown, unless the baseline names it.

**To fix it** `dmesg | grep -i clocksource` says why the kernel gave up the counter. If `tsc` is
still available, write `tsc` to `current_clocksource`; this holds until the next boot.
"""

from nodevet.checking.one_value import node_value, ok_if
from nodevet.evidence.kernel import Kernel
from nodevet.model import Area, CheckParams, Finding, unknown

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
    """The allowed clock sources, as the kernel names them; by default all that are cheap to
    read."""


def judge(params: Params, current: str, available: tuple[str, ...] | None) -> Finding:
    if not current:
        return unknown(why="clocksource: not in the evidence")
    right = current in (params.one_of or CHEAP)
    if not right and not params.one_of and current not in DEAR:
        return unknown(
            why=(
                f"{current[:60]}: nodevet does not know how long a read takes; if it is right, "
                "name it in one_of"
            )
        )
    expected = (
        " or ".join(params.one_of) if params.one_of else ("a clock source that is cheap to read")
    )
    advice = STILL_THERE if "tsc" in (available or ()) else GIVEN_UP
    return ok_if(right, expected=expected, actual=current, advice=advice)


CHECK = node_value(
    Params, Kernel, "clocksource", also=("clocksources",), judge=judge, area=Area.CPU
)
