"""How much the counters of one part grew since an earlier reading."""

from collections.abc import Hashable, Mapping
from typing import NamedTuple, Protocol

from nodevet.evidence.rates import Growth, growth, since_look

Counts = Mapping[Hashable, int | None]
"""The values of counters by name; None: not read."""


class EarlierReading(Protocol):
    """An earlier reading: nodevet.evidence.rates.Sample, or the reading of one of its parts."""

    @property
    def seconds(self) -> float: ...
    @property
    def why(self) -> str:
        """Why it was not read; empty if it was."""

    @property
    def look(self) -> bool: ...


class CountsBefore(NamedTuple):
    """The counters of a part at an earlier reading."""

    reading: EarlierReading
    then: Counts
    now: Counts
    again: bool  # the counters restarted at 0 since the last look, because one went back

    def growth_of(self, name: Hashable) -> Growth | None:
        """How much a counter grew; None if the last look does not say."""
        if self.reading.why:
            return Growth(why=self.reading.why)
        return growth_since(self.reading, self.then.get(name), self.now.get(name), again=self.again)


def counts_before(reading: EarlierReading, then: Counts, now: Counts) -> CountsBefore:
    pairs = ((count, now.get(name)) for name, count in then.items())
    again = any(old is not None and new is not None and new < old for old, new in pairs)
    return CountsBefore(reading, then, now, again)


def growth_since(
    reading: EarlierReading, then: int | None, now: int | None, *, again: bool = False
) -> Growth | None:
    """How much one counter grew since a reading; None if the last look does not say."""
    if reading.look:
        return since_look(then, now, reading.seconds, again=again)
    return growth(then, now, reading.seconds)
