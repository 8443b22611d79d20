"""The parts of every section, and the findings for unread values."""

from typing import ClassVar, Generic, TypeVar

import msgspec

from nodevet.base.bounds import Errors, Real, Text
from nodevet.model import Finding, Subject, unknown

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Values read together, and the reason for each one that could not be. Nothing in a record
    refers back to it, so Python need not look for garbage among thousands of them."""

    volatile: ClassVar[tuple[str, ...]] = ()
    """The fields that differ between two looks at a node where nothing happened: readings, clocks,
    how long something has run, who computes there. The store keeps them apart from the others."""

    apart: ClassVar[tuple[str, ...]] = ()
    """The fields whose items may lack a value that similar parts have: nodevet.evidence.peers."""

    errors: Errors = {}

    def why(self, field: str) -> str:
        """Why `field` is None; never empty."""
        return self.errors.get(field) or "not in the evidence"


def is_unknown_word(text: str | None) -> bool:
    """Whether a word of the kernel, a driver or a tool means that it does not know.

    >>> [is_unknown_word(word) for word in ("<unknown>", "UNKNOWN", "LinkUp", None)]
    [True, True, False, False]
    """
    return (text or "").strip(" <>()!?").lower() in UNKNOWN_WORDS


UNKNOWN_WORDS = ("unknown", "unknown state", "undefined", "invalid", "n/a")


def clear_unknown_words(record: Record, *fields: str) -> None:
    """Treat a state such as `unknown` as unread."""
    for field in fields:
        word = getattr(record, field)
        if is_unknown_word(word):
            msgspec.structs.force_setattr(record, field, None)
            reasons = {**record.errors, field: f"it says {word}"}
            msgspec.structs.force_setattr(record, "errors", reasons)


class SectionRecord(Record, frozen=True, kw_only=True, gc=True):
    """A whole section: the one subclass in each section's file."""

    unique: ClassVar[tuple[str, ...]] = ()
    """The field that identifies the items of one list, such as `gpus[].uuid` or
    `gpus[].nvlinks[].link`: no two items have the same. `found[].name+size` means both together."""

    plural: ClassVar[str] = ""
    """The plural of a subject kind that has the section's name; empty: the regular plural. `3
    cpufreq policies`, not `3 cpufreqs`.
    """

    def contradiction(self) -> str:
        """Values that contradict each other; "" if there are none."""
        return ""

    def with_parts_compared(self) -> "SectionRecord":
        """The same section after its parts were compared with one another."""
        return self


Data = TypeVar("Data", bound=SectionRecord)


class Section(msgspec.Struct, Generic[Data], frozen=True, kw_only=True):
    """What one collector returned: `data` is set when `status` is ok, else `why`."""

    status: Text  # ok, absent, denied, error, timeout
    why: Text = ""
    transient: bool = False  # unread in a state of the node that passes by itself
    seconds: Real = 0.0
    before_s: Real | None = None  # of an earlier reading: how long before the later one
    data: Data | None = None


MISSING = "the probe did not read this section"


NOT_ASKED = "the probe was not asked for it"
"""The reason for a sysctl or unit that is not in the evidence: another baseline chose what to
read.
"""


NOT_SUPPORTED = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_DEPRECATED")
"""NVML's errors if a GPU, or its driver, has no such setting."""


def unsupported(record: Record, field: str) -> bool:
    """Whether `field` is None because the GPU has no such thing, not because a read failed."""
    return getattr(record, field) is None and record.errors.get(field) in NOT_SUPPORTED


def unread(subject: Subject, record: Record, field: str) -> Finding:
    """The unknown finding for a value that could not be read."""
    return unknown(subject, why=f"{field}: {record.why(field)}")
