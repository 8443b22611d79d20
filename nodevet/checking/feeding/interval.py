"""A number that is known, known within bounds, or not known at all."""

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """From `low` to `high`, both possible. `high` of None: no bound is known."""

    low: float = 0.0  # at least
    high: float | None = None  # at most; null: not known

    @property
    def exact(self) -> bool:
        return self.low == self.high

    def times(self, factor: float) -> "Interval":
        """Each end by a factor above zero."""
        return Interval(self.low * factor, None if self.high is None else self.high * factor)

    def per(self, amount: float) -> "Interval":
        """How long an amount takes at this rate."""
        least = 0.0 if self.high is None else amount / self.high
        return Interval(least, amount / self.low if self.low > 0 else None)


UNKNOWN = Interval()
NO_TIME = Interval(0.0, 0.0)


def exactly(value: float) -> Interval:
    return Interval(value, value)


def smaller(first: Interval, second: Interval) -> Interval:
    """The smaller of two numbers that are known so far."""
    highs = [interval.high for interval in (first, second) if interval.high is not None]
    return Interval(min(first.low, second.low), min(highs, default=None))


def larger(first: Interval, second: Interval) -> Interval:
    """The larger of two numbers that are known so far."""
    if first.high is None or second.high is None:
        return Interval(max(first.low, second.low), None)
    return Interval(max(first.low, second.low), max(first.high, second.high))
