"""Lists of CPUs or NUMA nodes as the kernel prints them: 0-3,8, or as a mask 0000010f. Pure."""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

LARGEST = 8191  # a kernel has at most 8192 CPUs and 1024 nodes
MASK = re.compile(r"[0-9a-fA-F]{1,8}\Z")
RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?\Z")


def parse_cpulist(text: str) -> "list[int]":
    """The sorted ids of a list. Raises ValueError.

    >>> parse_cpulist("0-3,8")
    [0, 1, 2, 3, 8]
    """
    ids: "set[int]" = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = RANGE.match(part)
        if match is None:
            raise ValueError("not a valid cpulist: {}".format(ascii(text[:60])))
        first = int(match.group(1))
        last = int(match.group(2) or first)
        if not first <= last <= LARGEST:
            raise ValueError(
                "not a valid cpulist within 0-{}: {}".format(LARGEST, ascii(text[:60]))
            )
        ids.update(range(first, last + 1))
    return sorted(ids)


def format_cpulist(ids: "Iterable[int]") -> str:
    """The ids as the kernel prints them.

    >>> format_cpulist([8, 0, 1, 2, 3])
    '0-3,8'
    """
    ranges: "list[list[int]]" = []
    for number in sorted(set(ids)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(
        str(first) if first == last else "{}-{}".format(first, last) for first, last in ranges
    )


def parse_mask(text: str) -> "list[int]":
    """The ids of a mask: hexadecimal words of 32 bits, highest first. Raises ValueError.

    >>> parse_mask("00000001,80000003")
    [0, 1, 31, 32]
    """
    words = text.strip().split(",")
    if not all(MASK.match(word) for word in words) or len(words) > (LARGEST + 1) // 32:
        raise ValueError("not a valid CPU mask: {}".format(ascii(text[:60])))
    bits = int("".join(word.rjust(8, "0") for word in words), 16)
    return [id for id in range(bits.bit_length()) if bits >> id & 1]


def normal_mask(text: str) -> str:
    """A mask as a list. Raises ValueError."""
    return format_cpulist(parse_mask(text))


def normal(text: str) -> str:
    """A list in normal form. Raises ValueError."""
    return format_cpulist(parse_cpulist(text))


def normal_some(text: str) -> str:
    """`normal` of a list that cannot be empty. Raises ValueError."""
    if not text.strip():
        raise ValueError("the kernel lists none")
    return normal(text)
