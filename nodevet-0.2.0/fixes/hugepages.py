"""Reserve the expected number of huge pages, now and at every boot.

**Now** one write to `nr_hugepages` of each size that fails; for `none`, of each size that has
pages. The kernel may reserve fewer pages than requested: then the check fails, and nodevet restores
the earlier number.

**At every boot** `/etc/tmpfiles.d/nodevet-hugepages.conf` sets each size in the baseline early in
the boot, when memory is not yet fragmented.

**Risk** live if the fix only releases pages. drain if it reserves pages: they take memory from
jobs, and the kernel may move much memory to make room.

**Rollback** restores the earlier numbers and the file.

**What it cannot do.** It frees no page that a process or a file in a hugetlbfs mount holds; if only
free pages are missing, nodevet plans nothing. It does not reserve more than MemAvailable. A size
that the kernel does not have needs other hardware or another kernel. If memory is too fragmented
for pages of 1G, reserve them on the kernel command line. If the command line already reserves
another number of a size, nodevet plans nothing: change it there. The kernel chooses how many pages
each NUMA node gets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.hugepages import Params, kib, size_text
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.memory import Memory
from nodevet.fixing.kernel_files import conf, rule
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Resource
from nodevet.resource.kernel import WriteKernel

RULE = "/etc/tmpfiles.d/nodevet-hugepages.conf"
FILE = "/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all sizes; see `FIX`."""
    memory = evidence[Memory].data
    if memory is None or memory.hugepages is None:
        raise FixError("nodevet could not read the huge pages")
    present = {pages.size_kb: pages.total for pages in memory.hugepages}
    expected = expected_pages(params, present)
    if missing := [size_text(size) for size in expected if size not in present]:
        raise FixError(f"the kernel does not have pages of {', '.join(missing)}")
    unread = [size_text(size) for size in expected if present[size] is None]
    if unread:
        raise FixError(f"{', '.join(unread)}: the number of pages was not read")
    refuse_command_line(evidence, expected)
    changed = {size: pages for size, pages in expected.items() if pages != present[size]}
    if not changed:
        raise FixError("the number is right: processes or files in a hugetlbfs mount hold pages")
    more_kb = sum(size * (pages - (present[size] or 0)) for size, pages in changed.items())
    if more_kb > 0 and (memory.available_kb is None or more_kb > memory.available_kb):
        available = "an unknown number of" if memory.available_kb is None else memory.available_kb
        raise FixError(f"{more_kb} KiB more are needed, and {available} KiB are available")
    raises = any(pages > (present[size] or 0) for size, pages in changed.items())
    lines = [rule(FILE.format(size), str(pages)) for size, pages in sorted(expected.items())]
    writes = [
        WriteKernel(path=FILE.format(size), value=str(pages)) for size, pages in changed.items()
    ]
    yield PlannedChange(
        expected={size_text(size): pages for size, pages in changed.items()},
        actual={size_text(size): present[size] for size in changed},
        subjects=tuple(finding.subject.label for finding in failed),
        actions=(conf(RULE, lines), *writes),
        resources=(
            Resource(kind="file", name=RULE),
            *(Resource(kind="kernel", name=write.path) for write in writes),
        ),
        risk=Risk.DRAIN if raises else Risk.LIVE,
    )


def expected_pages(params: Params, present: Mapping[int, int | None]) -> dict[int, int]:
    """The pages of each size in KiB that the baseline expects; a size that the kernel does not have
    is left out if it expects none."""
    if params.total == "none":
        return dict.fromkeys(sorted(present), 0)
    pages = {kib(size): number for size, number in params.total.items()}
    return {size: number for size, number in pages.items() if number or size in present}


def refuse_command_line(evidence: Evidence, expected: Mapping[int, int]) -> None:
    """Raises FixError if the kernel's command line reserves another number of pages of a size."""
    cmdline = ((data := evidence[HostInfo].data) and data.cmdline) or ""
    for size, number in reserved_at_boot(cmdline):
        if size in expected and number != str(expected[size]):
            raise FixError(
                f"the kernel's command line has hugepages={number[:40]} for pages of "
                f"{size_text(size)}: change it there"
            )


def reserved_at_boot(cmdline: str) -> Iterator[tuple[int, str]]:
    """The sizes in KiB with `hugepages=` on the kernel's command line, each with what it says;
    Documentation/admin-guide/mm/hugetlbpage.rst.

    >>> list(reserved_at_boot("hugepages=512 hugepagesz=1G hugepages=0:4,1:4"))
    [(2048, '512'), (1048576, '0:4,1:4')]
    """
    pairs = [word.partition("=")[::2] for word in cmdline.split()]
    sizes = [value for key, value in pairs if key == "default_hugepagesz"]
    size = bytes_in(sizes[-1] if sizes else "2M")
    for key, value in pairs:
        if key in ("hugepagesz", "default_hugepagesz"):
            size = bytes_in(value)
        elif key == "hugepages":
            yield size >> 10, value


def bytes_in(size: str) -> int:
    """A size as the kernel's memparse() reads it; 0 if it is not one.

    >>> bytes_in("2M"), bytes_in("1073741824"), bytes_in("x")
    (2097152, 1073741824, 0)
    """
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)", size.upper())
    return int(match[1]) << SHIFTS[match[2]] if match else 0


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("swap",))
"""After swap, whose pages return to memory."""
