"""Times in a run, in words: when things happened, how old its evidence was. Pure."""

from collections.abc import Sequence

from nodevet.base.age import instant, seconds_of
from nodevet.base.durations import coarse
from nodevet.model import HostReport, HostSummary, Run, Status
from nodevet.sheet.text import count


def read_at(report: HostReport | HostSummary) -> str:
    """When the evidence was read, ISO 8601, by the controller's clock or else by the node's."""
    return report.arrived or report.clock


def evidence_age(run: Run) -> str:
    """`evidence 3 d old`, `evidence 2 h to 3 d old`; empty for a run that visited its hosts."""
    started = seconds_of(run.started)
    if not run.replayed or started is None:
        return ""
    read = [seconds_of(read_at(host)) for host in run.summaries if host.status is Status.VETTED]
    ages = [max(0.0, started - at) for at in read if at is not None]
    texts = []
    if ages:
        youngest, oldest = coarse(min(ages)), coarse(max(ages))
        span = oldest if youngest == oldest else f"{youngest} to {oldest}"
        texts.append(f"evidence {span} old")
    if unknown := read.count(None):
        texts.append(f"evidence of unknown age: {count(unknown, 'host')}")
    return ", ".join(texts)


def last_time(times: Sequence[str], started: str) -> str:
    """When something last happened, by the nodes' clocks; empty if none of `times` says so.

    >>> last_time(["2026-11-22T03:12:40+00:00"], "2026-11-22T05:20:00+00:00")
    'last 03:12 UTC, 2 h ago'
    """
    read = sorted(at for at in map(seconds_of, times) if at is not None)
    if not read:
        return ""
    start = seconds_of(started)
    first, last = (_minute(at, start) for at in (read[0], read[-1]))
    span = last if first == last else f"{first} to {last}"
    ago = None if start is None else start - read[-1]
    return f"last {span} UTC" + (f", {coarse(ago)} ago" if ago is not None and ago >= 0 else "")


def _minute(at: float, start: float | None) -> str:
    """`03:12` of the day on which the run began, `2026-11-20 03:12` of another one, in UTC."""
    day, time = instant(at)[:10], instant(at)[11:16]
    return time if day == instant(start)[:10] else f"{day} {time}"
