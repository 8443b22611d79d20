"""Compares how fast a counter grows with the baseline's limit per hour."""

from typing import NamedTuple

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.rates import HOUR, Growth


class Pace(NamedTuple):
    """Whether a counter grows no faster than allowed (`right`); None with a reason in `why` if
    unknown."""

    right: bool | None = None
    actual: str | float = ""
    why: str = ""


def pace(count: int, grown: Growth | None, most: float, evidence: Evidence) -> Pace:
    """The pace since an earlier reading if that was long enough ago, else since boot. `grown`: the
    growth since that reading; None without one."""
    if grown is not None:
        if grown.by is None:
            return Pace(why=grown.why)
        too_fast = grown.is_above(most)
        if too_fast is not None:
            return Pace(not too_fast, grown.text)
    hours, why = since_boot(evidence)
    if hours is None:
        return Pace(why=why)
    mean = count / hours
    return Pace(0 <= mean <= most, round(mean, 1))


def standstill(grown: Growth) -> Pace:
    """The pace of a counter that must not grow."""
    if grown.by is None:
        return Pace(why=grown.why)
    return Pace(grown.by == 0, grown.text)


def none_meanwhile(*, look: bool) -> str:
    """The expected value of a counter that must not grow."""
    return "none since the last look" if look else "none while sampled"


def since_boot(evidence: Evidence) -> tuple[float | None, str]:
    """The hours since boot, at least one; or why they are not known."""
    host = evidence[HostInfo]
    if host.data is None:
        return None, f"host: {host.why}"
    if host.data.uptime_s is None or host.data.uptime_s < 0:
        return None, f"uptime_s: {host.data.why('uptime_s')}"
    return max(1.0, host.data.uptime_s / HOUR), ""
