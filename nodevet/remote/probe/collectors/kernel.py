"""How the running kernel keeps time, and how much of its limits is in use.

/sys/devices/system/clocksource, adjtimex(2) without a change, /proc/loadavg, /proc/buddyinfo,
/proc/sys/fs/file-nr, /proc/sys/kernel/{pid_max,threads-max}; see proc(5).
"""

import os
import re

from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    is_this_machine,
    line,
    parsed,
    quote,
    text_lines,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Sequence

SOURCE = "/sys/devices/system/clocksource/clocksource0/"
LOAD = re.compile(r"([0-9.]{1,20}) ([0-9.]{1,20}) ([0-9.]{1,20}) [0-9]{1,10}/([0-9]{1,10}) ")
TIMEX = 512  # bytes; struct timex has 208
HUGE_KB = 2048  # a huge page
ROW = re.compile(r"Node ([0-9]{1,4}), zone +\S+ +([0-9 ]+)\Z")


def parse_load(text: str) -> "list[float]":
    """(load of 1, 5 and 15 minutes, threads) of /proc/loadavg. Raises ValueError."""
    match = LOAD.match(text)
    if match is None:
        raise ValueError("not a load average: {}".format(quote(text)))
    return [float(part) for part in match.groups()[:3]] + [int(match.group(4))]


def parse_handles(text: str) -> "tuple[int, int]":
    """(open files, limit) of /proc/sys/fs/file-nr. Raises ValueError."""
    words = text.split()
    if len(words) != 3:
        raise ValueError("not a file-nr: {}".format(quote(text)))
    return integer(words[0]), integer(words[2])


def parse_free(text: str, page_kb: int) -> float:
    """Percent of free memory in blocks of a huge page or more, of the NUMA node with least.
    Raises ValueError.

    >>> parse_free("Node 0, zone   Normal      512      0      0      0      0 0 0 0 0 1 0", 4)
    50.0
    """
    nodes: "dict[str, tuple[int, int]]" = {}
    for row in text_lines(text):
        match = ROW.match(row.strip())
        if match is None:
            raise ValueError("not a row of buddyinfo: {}".format(quote(row)))
        pages = [integer(count) << order for order, count in enumerate(match.group(2).split())]
        huge_blocks = [size for order, size in enumerate(pages) if page_kb << order >= HUGE_KB]
        free_pages, huge_free = nodes.get(match.group(1), (0, 0))
        nodes[match.group(1)] = free_pages + sum(pages), huge_free + sum(huge_blocks)
    shares = [
        100.0 * huge_free / free_pages for free_pages, huge_free in nodes.values() if free_pages
    ]
    if not shares:
        raise ValueError("no free memory in any zone")
    return round(min(shares), 1)


def free_huge_percent(root: str, request: "dict[str, Any]") -> float:
    """`parse_free` of this machine, which has the page size. Raises OSError, ValueError."""
    if not is_this_machine(root, request.get("whole_machine", False)):
        raise ValueError("the size of its pages is not known")
    return parsed(root, "/proc/buddyinfo", parse_free, os.sysconf("SC_PAGE_SIZE") >> 10)


def adjtimex() -> "tuple[int, int, int, int]":
    """(state, status, maxerror, esterror) of adjtimex(2) without a change. Raises OSError."""
    import ctypes

    class Timex(ctypes.Structure):
        _fields_ = (
            ("modes", ctypes.c_uint),
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("esterror", ctypes.c_long),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_char * TIMEX),
        )

    timex = Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return state, timex.status, timex.maxerror, timex.esterror


def clock(root: str, request: "dict[str, Any]") -> "tuple[int, int, int, int]":
    """The clock's discipline. Raises OSError, ValueError."""
    if not is_this_machine(root, request.get("whole_machine", False)):
        raise ValueError("the clock is this machine's, and {} is of another machine".format(root))
    try:
        return adjtimex()
    except (ImportError, AttributeError) as error:
        raise ValueError("Python here cannot call adjtimex: {}".format(error))


def take_fields(
    kernel: "Reading",
    fields: "Sequence[str]",
    function: "Callable[..., Iterable[object]]",
    *arguments: object,
) -> None:
    """Set the fields to the function's results."""
    values, why = attempt(function, *arguments)
    if values is None:
        kernel.fail_all(fields, why)
    else:
        kernel.update(zip(fields, values))


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    kernel = Reading()
    kernel.take("clocksource", line, root, SOURCE + "current_clocksource")
    kernel.take("clocksources", parsed, root, SOURCE + "available_clocksource", str.split)
    fields = ("clock_state", "clock_status", "clock_maxerror_us", "clock_esterror_us")
    take_fields(kernel, fields, clock, root, request)
    fields = ("load_1", "load_5", "load_15", "threads")
    take_fields(kernel, fields, parsed, root, "/proc/loadavg", parse_load)
    take_fields(kernel, ("files", "files_max"), parsed, root, "/proc/sys/fs/file-nr", parse_handles)
    kernel.take("pid_max", parsed, root, "/proc/sys/kernel/pid_max", integer)
    kernel.take("threads_max", parsed, root, "/proc/sys/kernel/threads-max", integer)
    kernel.take("free_huge_percent", free_huge_percent, root, request)
    return kernel
