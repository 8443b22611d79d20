"""How fast counters grow, by two readings of them: within one visit (`--sample`), or now and at
the last look (`--since`).

A check asks `sampled` first: without an earlier reading it judges what was counted since boot.
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
    """A section as it was some seconds before. `data` is None if that is not known, `why` says."""

    data: Data | None = None
    seconds: float = 0.0
    why: str = ""
    look: bool = False  # it is of the last look: of another visit, and what is missing is no doubt


def sampled(evidence: Evidence, record: type[Data]) -> Sample[Data] | None:
    """The earlier reading of a section; None if there is none, or the last look had not read it.

    A check names what it takes of it in `reads` as `earlier.pci.functions[].aer.correctable`.
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
    """How much a counter grew. `by` is None if that is not known, `why` says why."""

    by: int | None = None
    seconds: float = 0.0
    why: str = ""
    look: bool = False  # since the last look
    again: bool = False  # it began again at 0 meanwhile: at least so much

    @property
    def text(self) -> str:
        """As a finding says it: `2 in 10 s`, `2 in 24 h 3 min`."""
        if not self.look:
            return f"{self.by} in {self.seconds:.3g} s"
        reset = ", counted from 0 again meanwhile" if self.again else ""
        return f"{self.by} in {elapsed(self.seconds)}{reset}"

    def is_above(self, most: float, per: float = HOUR) -> bool | None:
        """Whether it grew by more than `most` in `per` seconds; None if that is not known."""
        return None if self.by is None else is_above(self.by, self.seconds, most, per)


def growth(before: int | None, now: int | None, seconds: float) -> Growth:
    """How much a counter grew in so many seconds.

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
    """How much a counter grew since the last look; None if it was not read then, or not now: it is
    judged as without.

    `again`: whether its driver or its device was reset meanwhile, as a counter that went back says:
    then all that it counts came since.

    >>> since_look(3, 5, 7200.0).text, since_look(5, 3, 7200.0).by
    ('2 in 2 h', 3)
    """
    if before is None or before < 0 or now is None or now < 0:
        return None
    again = again or now < before
    return Growth(by=now if again else now - before, seconds=seconds, look=True, again=again)


def is_above(count: int, seconds: float, most: float, per: float = HOUR) -> bool | None:
    """Whether so many in so many seconds are more than `most` in `per` seconds, beyond chance.

    None if the sample is too short to tell: a single error in ten seconds may well be the only one
    of its hour, and none in ten seconds says nothing of the hour.

    >>> is_above(1, 10, most=10), is_above(3, 10, most=10), is_above(0, HOUR, most=10)
    (None, True, False)
    """
    wanted = most * seconds / per
    if _at_least(count, wanted) < CHANCE:
        return True
    return False if count <= wanted and exp(-wanted) < CHANCE else None


def _at_least(count: int, mean: float) -> float:
    """How likely so many or more are, if `mean` are to be expected; Poisson's distribution."""
    if count > 10 * mean + 100:
        return 0.0
    if mean > 500:  # far from its edges it is as good as normal, and exp() would be 0
        return 0.0 if count > mean + 4 * mean**0.5 else 1.0
    term, below = exp(-mean), 0.0
    for number in range(count):
        below += term
        term *= mean / (number + 1)
    return max(0.0, 1.0 - below)
