"""Memory, huge pages, swap: /proc/meminfo, /sys/kernel/mm, /proc/swaps."""

import re

from nodevet.remote.probe import swaps
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    names,
    parse_rows,
    parsed,
    pick,
    quote,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MEMINFO = "/proc/meminfo"
HUGEPAGES = "/sys/kernel/mm/hugepages"
SIZE = re.compile(r"hugepages-([0-9]{1,12})kB\Z")
SIZES = 64
THP = "/sys/kernel/mm/transparent_hugepage/"
FIELDS = (
    ("total_kb", "MemTotal"),
    ("available_kb", "MemAvailable"),
    ("swap_total_kb", "SwapTotal"),
    ("swap_free_kb", "SwapFree"),
    ("dirty_kb", "Dirty"),
    ("buffers_kb", "Buffers"),
    ("cached_kb", "Cached"),
    ("shmem_kb", "Shmem"),
    ("slab_reclaimable_kb", "SReclaimable"),
    ("hugepages_total", "HugePages_Total"),
    ("hugepages_free", "HugePages_Free"),
    ("hugepage_size_kb", "Hugepagesize"),
    ("hugetlb_kb", "Hugetlb"),
)


def parse_amount(rows: "dict[str, str]", key: str) -> int:
    """One row of /proc/meminfo, in the row's own unit (KiB or pages). Raises ValueError.

    >>> parse_amount({"MemTotal": "16316412 kB"}, "MemTotal")
    16316412
    """
    text = pick(rows, MEMINFO, key)
    return integer(text[:-3] if text.endswith(" kB") else text)


def parse_choice(text: str) -> str:
    """The word in brackets: madvise of "always [madvise] never". Raises ValueError."""
    match = re.search(r"\[([a-z+_]+)\]", text)
    if match is None:
        raise ValueError("no value is selected in {}".format(quote(text)))
    return match.group(1)


def hugepages(root: str) -> "list[Reading]":
    """[{size_kb, total, free}], the smallest first. Raises OSError, ValueError."""
    sizes = [SIZE.match(name) for name in names(root, HUGEPAGES, SIZES)]
    return [pages(root, size) for size in sorted(int(size.group(1)) for size in sizes if size)]


def pages(root: str, size: int) -> "Reading":
    folder = "{}/hugepages-{}kB/".format(HUGEPAGES, size)
    record = Reading(size_kb=size)
    record.take("total", parsed, root, folder + "nr_hugepages", integer)
    record.take("free", parsed, root, folder + "free_hugepages", integer)
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    memory = Reading()
    rows, why = attempt(parsed, root, MEMINFO, parse_rows)
    for field, key in FIELDS:
        if rows is None:
            memory.fail(field, why)
        else:
            memory.take(field, parse_amount, rows, key)
    memory.take("hugepages", hugepages, root)
    memory.take("thp_enabled", parsed, root, THP + "enabled", parse_choice)
    memory.take("thp_defrag", parsed, root, THP + "defrag", parse_choice)
    swaps.take(memory, root)
    return memory
