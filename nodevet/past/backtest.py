"""What another baseline would have said of nights that are recorded. Pure.

What a host fails now is compared with what was said of it then, key by key. An *alarm* is a stretch
of nights in which a host fails something now that it did not fail then; a *failure* is something
critical that began then, an Xid, a lost GPU, or that a host could no longer be judged. An alarm
foresees the failures that begin on its host after it, within a number of days.
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
"""The checks whose failures are real ones, whatever their severity."""
DAY, HOUR = 86400.0, 3600.0


class Judged(NamedTuple):
    """One host of one run under the other baseline."""

    run: int  # its place among the runs
    host: str
    at: float  # Unix time of the visit
    known: bool  # whether it was judged: vetted then, and its evidence is still kept
    pruned: bool  # its evidence is kept no more
    gpus: int
    fails: tuple[str, ...]  # keys of what fails, at or above the bar
    then: tuple[str, ...]  # keys of what failed then
    outcome: str  # as it would be now


class BacktestNight(msgspec.Struct, frozen=True, kw_only=True):
    """One run: how many hosts fail, then and now."""

    run: str
    started: str
    hosts: int
    judged: int
    pruned: int
    then: int  # hosts that failed, of those that are judged
    now: int
    added: tuple[str, ...]  # hosts that fail something that they did not fail then
    cleared: tuple[str, ...]  # that failed then, and fail nothing now


class CheckDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one check, over all nights."""

    check: str
    added: int  # nights of hosts on which it fails now and did not then
    removed: int
    hosts_added: tuple[str, ...]
    hosts_removed: tuple[str, ...]


class LastNight(msgspec.Struct, frozen=True, kw_only=True):
    """One check in the last night: which hosts fail it now or then, and not both."""

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
    """All of it."""

    baselines: Mapping[str, str]
    nights: tuple[BacktestNight, ...]  # the oldest first
    hosts: int
    gpu_hours_then: float
    gpu_hours: float
    checks: tuple[CheckDelta, ...]
    added: tuple[LastNight, ...]  # alarms of the last night that are new
    removed: tuple[LastNight, ...]  # and those that are no more
    within_days: float
    alarms: int  # that began in these nights
    alarms_over: int  # of these, whose time to come true is over
    alarms_right: int  # of the latter, that a failure followed in time
    failures: tuple[Foreseen, ...]
    lead_days: float | None  # median of those that were foreseen

    @property
    def precision(self) -> float | None:
        """Of the alarms whose time is over, those that a failure followed."""
        return self.alarms_right / self.alarms_over if self.alarms_over else None

    @property
    def recall(self) -> float | None:
        """Of the failures those that an alarm came before."""
        foreseen = sum(bool(each.alarm) for each in self.failures)
        return foreseen / len(self.failures) if self.failures else None


class _Alarm(NamedTuple):
    host: str
    at: float
    checks: tuple[str, ...]


def check_of(key: str) -> str:
    return key.partition("/")[0]


class SaidThen:
    """What failed then, by host and time."""

    def __init__(self, spans: Iterable[FindingSpan], checks: Collection[str] | None = None) -> None:
        self._spans: dict[str, list[tuple[float, float, FindingSpan]]] = {}
        for span in spans:
            first, last = seconds_of(span.first.at), seconds_of(span.last.at)
            wanted = checks is None or span.check in checks
            counted = span.verdict is Verdict.FAIL and span.severity is not Severity.SHADOW
            if first is not None and last is not None and wanted and counted:
                self._spans.setdefault(span.host, []).append((first, last, span))

    def at(self, host: str, at: float, baseline: str, bar: Severity) -> tuple[str, ...]:
        """The keys that failed on a host at a visit."""
        return tuple(
            span.key
            for first, last, span in self._spans.get(host, ())
            if first <= at <= last and span.severity.rank >= bar.rank and span.baseline == baseline
        )


class Tally:
    """What comes of hosts, one after the other; of their visits it keeps sums and alarms alone."""

    def __init__(self, runs: Sequence[RecordedRun]) -> None:
        self._runs = runs
        self._usual = _usual([seconds_of(run.started) or 0.0 for run in runs])
        self._nights = [_Night() for _ in runs]
        self._checks = _Checks(), _Checks()  # what is new, what is no more
        self._last: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
        self._hours = [0.0, 0.0]  # then, now
        self._seen: dict[str, tuple[float, float]] = {}  # the first visit and the last
        self._alarms: dict[str, list[_Alarm]] = {}

    def add(self, host: str, visits: Iterable[Judged]) -> None:
        """All visits of one host. A host is added once."""
        listed = sorted(visits, key=lambda each: each.at)
        if not listed:
            return
        self._seen[host] = listed[0].at, listed[-1].at
        if alarms := list(_alarms(host, listed)):
            self._alarms[host] = alarms
        for place in (0, 1):
            self._hours[place] += _hours(listed, self._usual, now=bool(place))
        for each in listed:
            self._nights[each.run].add(each)
            now, then = {*each.fails}, {*each.then}
            if not each.known or now == then:
                continue
            for place, keys in enumerate((now - then, then - now)):
                for check in {check_of(key) for key in keys}:
                    self._checks[place].setdefault(check, Counter())[host] += 1
                    if each.run == len(self._runs) - 1:
                        self._last[place].setdefault(check, set()).add(host)

    def result(
        self, spans: Iterable[FindingSpan], *, baselines: Mapping[str, str], within_days: float
    ) -> Backtest:
        """All of it. `spans`: what was found in these nights."""
        alarms = [alarm for some in self._alarms.values() for alarm in some]
        failures = tuple(_failures(spans, self._seen, self._alarms, within_days))
        end = max((last for _, last in self._seen.values()), default=0.0)
        over, right = _followed(alarms, failures, within_days, end)
        leads = [each.days for each in failures if each.days is not None]
        then, now = self._hours
        return Backtest(
            baselines=baselines,
            nights=tuple(n.told(run) for n, run in zip(self._nights, self._runs, strict=True)),
            hosts=len(self._seen),
            gpu_hours_then=then,
            gpu_hours=now,
            checks=tuple(_deltas(*self._checks)),
            added=tuple(_last_night(self._last[0])),
            removed=tuple(_last_night(self._last[1])),
            within_days=within_days,
            alarms=len(alarms),
            alarms_over=over,
            alarms_right=right,
            failures=failures,
            lead_days=median(leads) if leads else None,
        )


def backtest(
    runs: Sequence[RecordedRun],
    judged: Iterable[Judged],
    spans: Iterable[FindingSpan],
    *,
    baselines: Mapping[str, str],
    within_days: float,
) -> Backtest:
    """Of these runs, the oldest first; `judged` has every host of every run."""
    by_host: dict[str, list[Judged]] = {}
    for each in judged:
        by_host.setdefault(each.host, []).append(each)
    tally = Tally(runs)
    for host, visits in by_host.items():
        tally.add(host, visits)
    return tally.result(spans, baselines=baselines, within_days=within_days)


def _usual(starts: Sequence[float]) -> float:
    """Seconds from one run to the next, mostly; a day if there is one run."""
    between = [after - before for before, after in pairwise(starts)]
    return median(between) if between else DAY


_Checks = dict[str, Counter[str]]
"""How often, by check and host."""


class _Night:
    """The hosts of one run, counted."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.added: list[str] = []
        self.cleared: list[str] = []

    def add(self, each: Judged) -> None:
        self.counts["hosts"] += 1
        self.counts["pruned"] += each.pruned
        if not each.known:
            return
        self.counts["judged"] += 1
        self.counts["then"] += bool(each.then)
        self.counts["now"] += bool(each.fails)
        if {*each.fails} - {*each.then}:
            self.added.append(each.host)
        if each.then and not each.fails:
            self.cleared.append(each.host)

    def told(self, run: RecordedRun) -> BacktestNight:
        names = ("hosts", "judged", "pruned", "then", "now")
        return BacktestNight(
            run=run.id,
            started=run.started,
            added=tuple(sorted(self.added)),
            cleared=tuple(sorted(self.cleared)),
            **{name: self.counts[name] for name in names},
        )


def _hours(visits: Sequence[Judged], usual: float, *, now: bool) -> float:
    """GPU-hours between each visit at which a host fails and the next that is judged; after the
    last one for as long as it usually takes to the next run."""
    known = [each for each in visits if each.known]
    total = 0.0
    for place, each in enumerate(known):
        if each.fails if now else each.then:
            later = known[place + 1].at if place + 1 < len(known) else each.at + usual
            total += each.gpus * (later - each.at) / HOUR
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


def _last_night(found: Mapping[str, Collection[str]]) -> Iterator[LastNight]:
    for check, hosts in sorted(found.items()):
        yield LastNight(check=check, hosts=tuple(sorted(hosts)))


def _alarms(host: str, visits: Sequence[Judged]) -> Iterator[_Alarm]:
    """The beginnings of the stretches in which a host fails what it did not fail then."""
    before = False
    for each in visits:
        if not each.known:
            continue
        new = {*each.fails} - {*each.then}
        if new and not before:
            yield _Alarm(host, each.at, tuple(sorted({check_of(key) for key in new})))
        before = bool(new)


def _failures(
    spans: Iterable[FindingSpan],
    seen: Mapping[str, tuple[float, float]],
    alarms: Mapping[str, Sequence[_Alarm]],
    within_days: float,
) -> Iterator[Foreseen]:
    """What began to fail in these nights on hosts that had been looked at before, the oldest
    first; of one host and check that in one night once."""
    found: dict[tuple[str, str, str], Foreseen] = {}
    for span in spans:
        looked = seen.get(span.host)
        began = seconds_of(span.first.at)
        if not looked or began is None or span.since not in (None, span.first):
            continue
        if span.after_plan:  # it failed in the visit before, too
            continue
        if not _is_real(span) or not looked[0] < began <= looked[1]:
            continue
        listed = alarms.get(span.host, ())
        place = bisect_right([alarm.at for alarm in listed], began - 1e-6)
        near = [each for each in listed[:place] if began - each.at <= within_days * DAY]
        first = near[0] if near else None
        found.setdefault(
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
    yield from sorted(found.values(), key=lambda each: (each.began, each.host, each.check))


def _is_real(span: FindingSpan) -> bool:
    """Whether it is a failure that somebody has to act on, and no news of a replaced machine."""
    if not span.check:
        return span.verdict is Verdict.UNKNOWN
    if span.verdict is not Verdict.FAIL or span.end is SpanEnd.REPLACED:
        return False
    return span.severity is Severity.CRITICAL or span.check in GRAVE


def _followed(
    alarms: Sequence[_Alarm], failures: Sequence[Foreseen], within_days: float, end: float
) -> tuple[int, int]:
    """Of how many alarms the time is over, and how many of them a failure followed in it."""
    began: dict[str, list[float]] = {}
    for failure in failures:
        began.setdefault(failure.host, []).append(seconds_of(failure.began) or 0.0)
    over = right = 0
    for alarm in alarms:
        until = alarm.at + within_days * DAY
        if until <= end:
            over += 1
            right += any(alarm.at < at <= until for at in began.get(alarm.host, ()))
    return over, right
