"""Ids that identify a part or machine, and placeholders that do not."""

import re

NO_IDS = frozenset(
    {
        *("na", "none", "null", "unknown", "notspecified", "notavailable", "notapplicable"),
        *("notset", "empty", "invalid", "badindex", "eval", "defaultstring", "uninitialized"),
        *("tobefilledbyoem", "tobefilledbyoembymorestring", "oem", "serial", "serialnumber"),
        *("systemserialnumber", "productserialnumber", "chassisserialnumber"),
        *("boardserialnumber", "baseboardserialnumber", "mb1234567890", "sys1234567890"),
        *("12345", "123456", "1234567", "12345678", "123456789", "1234567890"),
        *("0123456789", "0123456789abcdef"),
    }
)
"""What vendors and images write instead of an id; without spaces, punctuation and trailing x."""
LEAST_DIGITS = 6  # different digits; a random UUID has fewer once in 10^12


def is_id(text: str | None) -> bool:
    """Whether an id or a serial number identifies a part.

    >>> [is_id(each) for each in ("S5XX0007", "0000-0000", "ff:ff:ff", "N/A", " ", None)]
    [True, False, False, False, False, False]
    """
    bare = _bare(text)
    return (
        bool(bare)
        and NO_IDS.isdisjoint((bare, bare.rstrip("x")))
        and not any(set(bare) <= {digit} for digit in "0fx")
    )


def is_uuid(text: str | None) -> bool:
    """Whether a GPU's UUID is its own, not a redacted or invented one.

    >>> is_uuid("GPU-5e7a1c90-44b1-4d7e-9c11-2f6d03a8b7e4"), is_uuid("GPU-00000001-0000-0001")
    (True, False)
    """
    return is_id(text) and len(set(_bare(text))) >= LEAST_DIGITS


def _bare(text: str | None) -> str:
    return re.sub(r"[\W_]", "", (text or "").lower()).removeprefix("gpu")
