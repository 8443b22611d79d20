"""Section kernel."""

from typing import Annotated

from nodevet.base.bounds import Real, Text, at_most
from nodevet.evidence.core import SectionRecord

CLOCKSOURCES = at_most(64)  # that a kernel offers

UNSYNC = 0x40  # STA_UNSYNC: nothing disciplines the clock


class Kernel(SectionRecord, frozen=True, kw_only=True):
    """How the kernel keeps time, and how much of its limits is in use."""

    plural = "kernels"

    clocksource: Text | None = None  # tsc, kvm-clock, hpet, ...
    clocksources: Annotated[tuple[Text, ...], CLOCKSOURCES] | None = None
    clock_state: int | None = None  # adjtimex(2): 0 to 4 TIME_OK and leap seconds, 5 TIME_ERROR
    clock_status: int | None = None  # STA_ bits of <linux/timex.h>
    clock_maxerror_us: int | None = None  # grows by 500 ppm until the clock is disciplined again
    clock_esterror_us: int | None = None
    load_1: Real | None = None  # /proc/loadavg
    load_5: Real | None = None
    load_15: Real | None = None
    threads: int | None = None  # of all processes, kernel threads too
    threads_max: int | None = None
    pid_max: int | None = None  # threads have a pid of their own each
    files: int | None = None  # /proc/sys/fs/file-nr
    files_max: int | None = None
    # of the NUMA node with least: its free memory that is in blocks of 2 MiB and more
    free_huge_percent: Real | None = None
