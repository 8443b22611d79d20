"""How fast counters grow between two readings: within one visit (`--sample`), or since the last
look (`--since`).

A check calls `earlier_sample` first: without an earlier reading it judges the count since boot.
"""

from math import exp
from typing import Generic

from msgspec import Struct

from nodevet.base.durations import elapsed
from nodevet.evidence.core import Data
from nodevet.evidence.document import Evidence

HOUR = 3600.0  # seconds
DAY = 24 * HOUR
CHANCE = 0.001  # of being wrong by mere chance


class Sample(Struct, Generic[Data], frozen=True, kw_only=True):
    """A section some seconds before; `data` is None with a reason in `why` if unknown."""

    data: Data | None = None
    seconds: float = 0.0
    why: str = ""
    look: bool = False  # it is of the last look: of another visit, and what is missing is no doubt


def earlier_sample(evidence: Evidence, record: type[Data]) -> Sample[Data] | None:
    """The earlier reading of a section; None if there is none, or the last look lacks it.

    A check lists its fields in `reads` as `earlier.pci.functions[].aer.correctable`.
    """
    if evidence.since is not None:
        data = evidence.since.sections[record].data
        return (
            None if data is None else Sample(data=data, seconds=evidence.since.seconds, look=True)
        )
    if evidence.earlier is None:
        return None
    section = evidence.earlier[record]
    if section.data is None:
        return Sample(why=section.why)
    if section.before_s is None or not 0 < section.before_s < DAY:
        return Sample(why="how long before it was read is not known")
    return Sample(data=section.data, seconds=section.before_s)


class Growth(Struct, frozen=True, kw_only=True):
    """How much a counter grew; `by` is None with a reason in `why` if unknown."""

    by: int | None = None
    seconds: float = 0.0
    why: str = ""
    look: bool = False  # since the last look
    again: bool = False  # it restarted at 0 meanwhile: at least `by`

    @property
    def text(self) -> str:
        """For a finding: `2 in 10 s`, `2 in 24 h 3 min`."""
        if not self.look:
            return f"{self.by} in {self.seconds:.3g} s"
        reset = ", counted from 0 again meanwhile" if self.again else ""
        return f"{self.by} in {elapsed(self.seconds)}{reset}"

    def is_above(self, most: float, per: float = HOUR) -> bool | None:
        """Whether it grew by more than `most` in `per` seconds; None if unknown."""
        return None if self.by is None else is_above(self.by, self.seconds, most, per)


def growth(before: int | None, now: int | None, seconds: float) -> Growth:
    """How much a counter grew in `seconds`.

    >>> growth(3, 5, 10.0).text, growth(5, 3, 10.0).why
    ('2 in 10 s', 'it went back from 5 to 3: reset, or its driver was loaded again')
    """
    if before is None or before < 0:
        return Growth(why="it was not read earlier")
    if now is None or now < 0:
        return Growth(why="it was not read")
    if now < before:
        why = f"it went back from {before} to {now}: reset, or its driver was loaded again"
        return Growth(why=why)
    return Growth(by=now - before, seconds=seconds)


def since_look(
    before: int | None, now: int | None, seconds: float, *, again: bool = False
) -> Growth | None:
    """How much a counter grew since the last look; None if one of the readings is missing.

    `again`: its driver or device was reset meanwhile; a lower count implies it. Then all of it
    is new.

    >>> since_look(3, 5, 7200.0).text, since_look(5, 3, 7200.0).by
    ('2 in 2 h', 3)
    """
    if before is None or before < 0 or now is None or now < 0:
        return None
    again = again or now < before
    return Growth(by=now if again else now - before, seconds=seconds, look=True, again=again)


def is_above(count: int, seconds: float, most: float, per: float = HOUR) -> bool | None:
    """Whether `count` in `seconds` is significantly above `most` in `per` seconds.

    None if the sample is too short: one error in ten seconds may be the only one of its hour, and
    none in ten seconds says nothing about the hour.

    >>> is_above(1, 10, most=10), is_above(3, 10, most=10), is_above(0, HOUR, most=10)
    (None, True, False)
    """
    expected = most * seconds / per
    if _at_least(count, expected) < CHANCE:
        return True
    return False if count <= expected and exp(-expected) < CHANCE else None


def _at_least(count: int, mean: float) -> float:
    """The probability of `count` or more at this mean: Poisson's distribution."""
    if count > 10 * mean + 100:
        return 0.0
    if mean > 500:  # about normal; exp() would be 0
        return 0.0 if count > mean + 4 * mean**0.5 else 1.0
    term, fewer = exp(-mean), 0.0
    for number in range(count):
        fewer += term
        term *= mean / (number + 1)
    return max(0.0, 1.0 - fewer)
