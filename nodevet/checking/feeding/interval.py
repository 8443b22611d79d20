"""A number that is known exactly, known within bounds, or unknown."""

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """From `low` to `high`, including both. If `high` is None, no upper bound is known."""

    low: float = 0.0  # at least
    high: float | None = None  # at most; null: not known

    @property
    def exact(self) -> bool:
        return self.low == self.high

    def times(self, factor: float) -> "Interval":
        """The interval multiplied by a factor above zero."""
        return Interval(self.low * factor, None if self.high is None else self.high * factor)

    def time_for(self, amount: float) -> "Interval":
        """The time that an amount takes at this rate."""
        least = 0.0 if self.high is None else amount / self.high
        return Interval(least, amount / self.low if self.low > 0 else None)


UNKNOWN = Interval()
NO_TIME = Interval(0.0, 0.0)


def exact_interval(value: float) -> Interval:
    return Interval(value, value)


def smaller(first: Interval, second: Interval) -> Interval:
    """The smaller of two numbers, each known as an interval."""
    highs = [interval.high for interval in (first, second) if interval.high is not None]
    return Interval(min(first.low, second.low), min(highs, default=None))


def larger(first: Interval, second: Interval) -> Interval:
    """The larger of two numbers, each known as an interval."""
    if first.high is None or second.high is None:
        return Interval(max(first.low, second.low), None)
    return Interval(max(first.low, second.low), max(first.high, second.high))
