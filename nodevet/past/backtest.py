"""The findings that another baseline would have had in recorded nights. Pure.

The findings now are compared with those of then, key by key. An *alarm* is a stretch of nights in
which a host fails something now that it did not fail then. A *failure* is something critical that
began then: an Xid, a lost GPU, or a host that could no longer be judged. An alarm foresees the
failures that begin on its host after it, within a number of days.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import msgspec

from nodevet.base.age import instant, seconds_of
from nodevet.model import Severity, Verdict
from nodevet.store.records.model import FindingSpan, RecordedRun, SpanEnd

GRAVE = frozenset({"xid", "gpu_lost"})
"""The checks whose failures count whatever their severity."""
DAY, HOUR = 86400.0, 3600.0


class Judged(NamedTuple):
    """One host of one run under the other baseline."""

    run: int  # index of the run
    host: str
    at: float  # Unix time of the visit
    known: bool  # whether it is judged: it was vetted, and its evidence is still kept
    pruned: bool  # whether its evidence was pruned
    gpus: int
    fails: tuple[str, ...]  # keys of the failures now, at or above the bar
    then: tuple[str, ...]  # keys of the failures then


class BacktestNight(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the hosts that failed then, and that fail now."""

    run: str
    started: str
    hosts: int
    judged: int
    pruned: int
    then: int  # judged hosts that failed then
    now: int
    added: tuple[str, ...]  # hosts that fail something that they did not fail then
    cleared: tuple[str, ...]  # that failed then, and fail nothing now


class CheckDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of one check, over all nights."""

    check: str
    added: int  # visits in which it fails now and did not fail then
    removed: int
    hosts_added: tuple[str, ...]
    hosts_removed: tuple[str, ...]


class LastNight(msgspec.Struct, frozen=True, kw_only=True):
    """One check in the last night: the hosts that fail it either now or then."""

    check: str
    hosts: tuple[str, ...]


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """A failure, and the alarm before it."""

    host: str
    check: str  # that failed; empty: the host could not be judged
    began: str  # ISO 8601
    alarm: str = ""  # the checks of the alarm; empty: none came before
    warned: str = ""
    days: float | None = None  # from one to the other


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of recorded nights with another baseline."""

    baselines: Mapping[str, str]
    nights: tuple[BacktestNight, ...]  # the oldest first
    hosts: int
    gpu_hours_then: float
    gpu_hours: float
    checks: tuple[CheckDelta, ...]
    added: tuple[LastNight, ...]  # new alarms of the last night
    removed: tuple[LastNight, ...]  # alarms of the last night that are gone
    within_days: float
    alarms: int  # that began in these nights
    alarms_over: int  # of these, whose `within_days` are over
    alarms_right: int  # of the latter, that a failure followed in time
    failures: tuple[Foreseen, ...]
    lead_days: float | None  # median of those that were foreseen


class _Alarm(NamedTuple):
    host: str
    at: float
    checks: tuple[str, ...]


def check_of(key: str) -> str:
    return key.partition("/")[0]


class PastFailures:
    """The recorded failures, by host and time."""

    def __init__(self, spans: Iterable[FindingSpan], checks: Collection[str] | None = None) -> None:
        self._spans: dict[str, list[tuple[float, float, FindingSpan]]] = {}
        for span in spans:
            first, last = seconds_of(span.first.at), seconds_of(span.last.at)
            is_asked = checks is None or span.check in checks
            is_failure = span.verdict is Verdict.FAIL and span.severity is not Severity.SHADOW
            if first is not None and last is not None and is_asked and is_failure:
                self._spans.setdefault(span.host, []).append((first, last, span))

    def failing_keys(self, host: str, at: float, baseline: str, bar: Severity) -> tuple[str, ...]:
        """The keys that failed on a host at a visit, at or above the bar."""
        return tuple(
            span.key
            for first, last, span in self._spans.get(host, ())
            if first <= at <= last and span.severity.rank >= bar.rank and span.baseline == baseline
        )


class Tally:
    """Sums up one host after the other. It keeps sums and alarms, and no visits."""

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        self._runs = runs
        self._usual = _usual_gap([seconds_of(run.started) or 0.0 for run in runs])
        self._nights = [_Night() for _ in runs]
        self._checks = _Checks(), _Checks()  # new failures, failures that are gone
        self._last: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
        self._hours = [0.0, 0.0]  # then, now
        self._visited: dict[str, tuple[float, float]] = {}  # times of the first and last visit
        self._alarms: dict[str, list[_Alarm]] = {}

    def add(self, host: str, visits: Iterable[Judged]) -> None:
        """Add all visits of one host, once for each host."""
        ordered = sorted(visits, key=lambda visit: visit.at)
        if not ordered:
            return
        self._visited[host] = ordered[0].at, ordered[-1].at
        if alarms := list(_alarms(host, ordered)):
            self._alarms[host] = alarms
        for side in (0, 1):
            self._hours[side] += _hours(ordered, self._usual, now=bool(side))
        for visit in ordered:
            self._nights[visit.run].add(visit)
            fails_now, failed_then = {*visit.fails}, {*visit.then}
            if not visit.known or fails_now == failed_then:
                continue
            for side, keys in enumerate((fails_now - failed_then, failed_then - fails_now)):
                for check in {check_of(key) for key in keys}:
                    self._checks[side].setdefault(check, Counter())[host] += 1
                    if visit.run == len(self._runs) - 1:
                        self._last[side].setdefault(check, set()).add(host)

    def result(
        self, spans: Iterable[FindingSpan], *, baselines: Mapping[str, str], within_days: float
    ) -> Backtest:
        """The result. `spans`: the findings of these nights."""
        alarms = [alarm for host_alarms in self._alarms.values() for alarm in host_alarms]
        failures = tuple(_failures(spans, self._visited, self._alarms, within_days))
        end = max((last for _, last in self._visited.values()), default=0.0)
        finished, right = _count_right_alarms(alarms, failures, within_days, end)
        leads = [failure.days for failure in failures if failure.days is not None]
        hours_then, hours_now = self._hours
        return Backtest(
            baselines=baselines,
            nights=tuple(
                night.result(run) for night, run in zip(self._nights, self._runs, strict=True)
            ),
            hosts=len(self._visited),
            gpu_hours_then=hours_then,
            gpu_hours=hours_now,
            checks=tuple(_deltas(*self._checks)),
            added=tuple(_last_night(self._last[0])),
            removed=tuple(_last_night(self._last[1])),
            within_days=within_days,
            alarms=len(alarms),
            alarms_over=finished,
            alarms_right=right,
            failures=failures,
            lead_days=median(leads) if leads else None,
        )


def _usual_gap(starts: Sequence[float]) -> float:
    """The median of the seconds between runs; a day if there is one run."""
    between = [after - before for before, after in pairwise(starts)]
    return median(between) if between else DAY


_Checks = dict[str, Counter[str]]
"""The number of visits, by check and host."""


class _Night:
    """Counts of the hosts of one run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.added: list[str] = []
        self.cleared: list[str] = []

    def add(self, visit: Judged) -> None:
        self.counts["hosts"] += 1
        self.counts["pruned"] += visit.pruned
        if not visit.known:
            return
        self.counts["judged"] += 1
        self.counts["then"] += bool(visit.then)
        self.counts["now"] += bool(visit.fails)
        if {*visit.fails} - {*visit.then}:
            self.added.append(visit.host)
        if visit.then and not visit.fails:
            self.cleared.append(visit.host)

    def result(self, run: RecordedRun) -> BacktestNight:
        names = ("hosts", "judged", "pruned", "then", "now")
        return BacktestNight(
            run=run.id,
            started=run.started,
            added=tuple(sorted(self.added)),
            cleared=tuple(sorted(self.cleared)),
            **{name: self.counts[name] for name in names},
        )


def _hours(visits: Sequence[Judged], usual: float, *, now: bool) -> float:
    """GPU-hours from each visit that fails to the next visit that is judged. The last visit counts
    for `usual` seconds."""
    judged = [visit for visit in visits if visit.known]
    total = 0.0
    for index, visit in enumerate(judged):
        if visit.fails if now else visit.then:
            end = judged[index + 1].at if index + 1 < len(judged) else visit.at + usual
            total += visit.gpus * (end - visit.at) / HOUR
    return total


def _deltas(added: _Checks, removed: _Checks) -> Iterator[CheckDelta]:
    for check in sorted({*added, *removed}):
        plus, minus = added.get(check, Counter()), removed.get(check, Counter())
        yield CheckDelta(
            check=check,
            added=plus.total(),
            removed=minus.total(),
            hosts_added=tuple(sorted(plus)),
            hosts_removed=tuple(sorted(minus)),
        )


def _last_night(hosts_by_check: Mapping[str, Collection[str]]) -> Iterator[LastNight]:
    for check, hosts in sorted(hosts_by_check.items()):
        yield LastNight(check=check, hosts=tuple(sorted(hosts)))


def _alarms(host: str, visits: Sequence[Judged]) -> Iterator[_Alarm]:
    """The beginnings of the stretches in which a host fails something that it did not fail then."""
    is_alarm = False
    for visit in visits:
        if not visit.known:
            continue
        new_keys = {*visit.fails} - {*visit.then}
        if new_keys and not is_alarm:
            yield _Alarm(host, visit.at, tuple(sorted({check_of(key) for key in new_keys})))
        is_alarm = bool(new_keys)


def _failures(
    spans: Iterable[FindingSpan],
    visited: Mapping[str, tuple[float, float]],
    alarms: Mapping[str, Sequence[_Alarm]],
    within_days: float,
) -> Iterator[Foreseen]:
    """The failures that began in these nights on hosts that were visited before, the oldest first.
    One check of one host counts once for each night."""
    failures: dict[tuple[str, str, str], Foreseen] = {}
    for span in spans:
        times = visited.get(span.host)
        began = seconds_of(span.first.at)
        if not times or began is None or span.since not in (None, span.first):
            continue
        if span.after_plan:  # it failed in the visit before, too
            continue
        if not _is_real(span) or not times[0] < began <= times[1]:
            continue
        host_alarms = alarms.get(span.host, ())
        end = bisect_right([alarm.at for alarm in host_alarms], began - 1e-6)
        near = [failure for failure in host_alarms[:end] if began - failure.at <= within_days * DAY]
        first = near[0] if near else None
        failures.setdefault(
            (span.host, span.check, span.first.at),
            Foreseen(
                host=span.host,
                check=span.check,
                began=span.first.at,
                alarm=", ".join(first.checks) if first else "",
                warned=instant(first.at) if first else "",
                days=(began - first.at) / DAY if first else None,
            ),
        )
    yield from sorted(
        failures.values(), key=lambda failure: (failure.began, failure.host, failure.check)
    )


def _is_real(span: FindingSpan) -> bool:
    """Whether a person has to act on it; the findings of a machine that was replaced do not
    count."""
    if not span.check:
        return span.verdict is Verdict.UNKNOWN
    if span.verdict is not Verdict.FAIL or span.end is SpanEnd.REPLACED:
        return False
    return span.severity is Severity.CRITICAL or span.check in GRAVE


def _count_right_alarms(
    alarms: Sequence[_Alarm], failures: Sequence[Foreseen], within_days: float, end: float
) -> tuple[int, int]:
    """The number of alarms whose time is over, and how many of them a failure followed in time."""
    began: dict[str, list[float]] = {}
    for failure in failures:
        began.setdefault(failure.host, []).append(seconds_of(failure.began) or 0.0)
    finished = right = 0
    for alarm in alarms:
        until = alarm.at + within_days * DAY
        if until <= end:
            finished += 1
            right += any(alarm.at < at <= until for at in began.get(alarm.host, ()))
    return finished, right
