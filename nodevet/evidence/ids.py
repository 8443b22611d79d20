"""Ids that tell one part or machine from another, and the placeholders that do not."""

import re

NO_IDS = frozenset(
    {
        *("na", "none", "null", "unknown", "notspecified", "notavailable", "notapplicable"),
        *("defaultstring", "tobefilledbyoem", "oem", "serialnumber", "systemserialnumber"),
        *("123456789", "1234567890", "0123456789", "0123456789abcdef", "uninitialized"),
    }
)
"""What vendors and images write in place of an id; without spaces and punctuation."""
RANDOM = 6  # different digits; a random UUID has fewer once in 10^12


def is_id(text: str | None) -> bool:
    """Whether an id or a serial number tells one part from another.

    >>> [is_id(each) for each in ("S5XX0007", "0000-0000", "ff:ff:ff", "N/A", " ", None)]
    [True, False, False, False, False, False]
    """
    said = _bare(text)
    return bool(said) and said not in NO_IDS and not any(set(said) <= {each} for each in "0fx")


def is_uuid(text: str | None) -> bool:
    """Whether a GPU's UUID is its own; a redacted or invented one may be any GPU's.

    >>> is_uuid("GPU-5e7a1c90-44b1-4d7e-9c11-2f6d03a8b7e4"), is_uuid("GPU-00000001-0000-0001")
    (True, False)
    """
    return is_id(text) and len(set(_bare(text))) >= RANDOM


def _bare(text: str | None) -> str:
    return re.sub(r"[\s:./_-]", "", (text or "").lower()).removeprefix("gpu")
