"""Texts that differ in nothing but their numbers, as one: `490 to 520 W, expected 700 W`. Pure."""

import re
from collections.abc import Sequence

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_NUMBER = r"(?<![\w.:,-])\d{1,18}(?:\.\d{1,18})?(?![\w:]|[.,-]\w)"
_VARIES = re.compile(f"(?P<address>{_ADDRESS})|(?P<number>{_NUMBER})")


def shape(text: str) -> str:
    """The text without its quantities and PCI addresses. A number in a name, a version, a date or a
    list is part of it: x8, Gen5, 550.90.07, 2026-11-22, 0-31.

    >>> shape("490 W at 0000:5d:00.0, x8, driver 550.90.07")
    '\\x01 W at \\x02, x8, driver 550.90.07'
    """
    return _VARIES.sub(lambda match: "\x02" if match["address"] else "\x01", text)


def spanned(texts: Sequence[str]) -> str:
    """Texts of one shape as one: each number as the range that it has, each address counted.

    >>> spanned(["3 of 8", "1 of 8", "2 of 8"])
    '1 to 3 of 8'
    """
    columns = list(zip(*(_VARIES.findall(text) for text in texts), strict=True))
    ranges = iter([_range([address or number for address, number in column]) for column in columns])
    return _VARIES.sub(lambda match: next(ranges), texts[0])


def _range(values: Sequence[str]) -> str:
    distinct = sorted(set(values), key=lambda value: (len(value), value))
    if len(distinct) == 1:
        return distinct[0]
    if ":" in distinct[0]:
        return f"{len(distinct):,} addresses"
    distinct.sort(key=float)
    return f"{distinct[0]} to {distinct[-1]}"
