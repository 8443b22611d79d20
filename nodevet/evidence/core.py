"""What every section is made of, and what to say of a value that was not read."""

from typing import ClassVar, Generic, TypeVar

import msgspec

from nodevet.base.bounds import Errors, Text
from nodevet.model import Finding, Subject, unknown

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Values read together, and the reason for each one that could not be."""

    volatile: ClassVar[tuple[str, ...]] = ()
    """The fields that differ between two looks at a node where nothing happened: readings, clocks,
    how long something has run, who computes there. The store keeps them apart from the others."""

    apart: ClassVar[tuple[str, ...]] = ()
    """The fields whose items may lack what those of a like part have: nodevet.evidence.peers."""

    errors: Errors = {}

    def why(self, field: str) -> str:
        """Why `field` is None; never empty."""
        return self.errors.get(field) or "not in the evidence"


def is_no_word(text: str | None) -> bool:
    """Whether the kernel, a driver or a tool says by this word that it does not know.

    >>> [is_no_word(word) for word in ("<unknown>", "UNKNOWN", "unknown state", "LinkUp", None)]
    [True, True, True, False, False]
    """
    return (text or "").strip(" <>()!?").lower() in NO_WORDS


NO_WORDS = ("unknown", "unknown state", "undefined", "invalid", "n/a")


def forget_no_words(record: Record, *fields: str) -> None:
    """Take a state that is none for one that was not read."""
    for field in fields:
        text = getattr(record, field)
        if is_no_word(text):
            msgspec.structs.force_setattr(record, field, None)
            reasons = {**record.errors, field: f"it says {text}"}
            msgspec.structs.force_setattr(record, "errors", reasons)


class SectionRecord(Record, frozen=True, kw_only=True):
    """What a section holds as a whole: the one subclass in each section's file."""

    unique: ClassVar[tuple[str, ...]] = ()
    """What tells the items of one list apart, as `gpus[].uuid` or `gpus[].nvlinks[].link`: no two
    items have the same. `found[].name+size` means both together."""

    plural: ClassVar[str] = ""
    """What several subjects are called whose kind has the section's name; empty: as English has
    it. `3 cpufreq policies`, not `3 cpufreqs`."""

    def contradiction(self) -> str:
        """What one machine cannot have together, though each value by itself; empty if nothing."""
        return ""

    def settled(self) -> "SectionRecord":
        """The same, in which the parts of a list are held against one another."""
        return self


Data = TypeVar("Data", bound=SectionRecord)


class Section(msgspec.Struct, Generic[Data], frozen=True, kw_only=True):
    """What one collector returned: `data` is set when `status` is ok, else `why`."""

    status: Text  # ok, absent, denied, error, timeout
    why: Text = ""
    transient: bool = False  # not read in a state of the node that passes by itself
    seconds: float = 0.0
    before_s: float | None = None  # of an earlier reading: how long before the later one
    data: Data | None = None


MISSING = "the probe did not read this section"


NOT_ASKED = "the probe was not asked for it"
"""Of a sysctl or a unit that is not in the evidence: it is as old as another baseline."""


NOT_SUPPORTED = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_DEPRECATED")
"""What NVML answers if a GPU, or its driver, has no such setting at all."""


def unsupported(record: Record, field: str) -> bool:
    """Whether `field` is None because the GPU has no such thing, not because a read failed."""
    return getattr(record, field) is None and record.errors.get(field) in NOT_SUPPORTED


def unread(subject: Subject, record: Record, field: str) -> Finding:
    """The unknown finding for a value that could not be read."""
    return unknown(subject, why=f"{field}: {record.why(field)}")
