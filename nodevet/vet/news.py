"""A run compared with the history: what is new, what is fixed, and since when. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

import msgspec

from nodevet.base.age import seconds_of
from nodevet.base.printable import brief
from nodevet.model import NODE, HostReport, Status, Verdict
from nodevet.model.changes import FindingNews, HostNews, Marks, News
from nodevet.model.run import Ended, Run, RunNews, StandingTrouble

ByHost = Mapping[str, Mapping[int, StandingTrouble]]
LONGEST = 200  # characters of what had been found
DAY = 86400.0


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The previous run of the same sweep; for a check by hand, the last recorded run."""

    id: str = ""
    started: str = ""
    nodevet: str = ""
    baselines: Mapping[str, str] = {}
    hosts: frozenset[str] = frozenset()  # empty: that a host is no longer there cannot be told
    seen: Mapping[str, int] = {}  # the visit in which a host was reported last, by its number


def news_of(run: Run, host_news: Iterable[HostNews], before: Before) -> RunNews:
    """The news of this run. `host_news`: of each recorded host."""
    by_host = {news.host: news for news in host_news}
    standing: list[StandingTrouble] = []
    ended: list[Ended] = []
    for place, summary in enumerate(run.summaries):
        previous = by_host.get(summary.host)
        if previous is None or not previous.findings or summary.status is Status.INTERRUPTED:
            continue
        report = run.hosts[place]
        for finding in previous.findings:
            if finding.news in (News.FIXED, News.GONE):
                ended.append(_ended(finding, report))
            else:
                standing.append(_standing(finding, report, before))
    visited = {summary.host for summary in run.summaries}
    return RunNews(
        since=before.started,
        run=before.id,
        standing=tuple(standing),
        ended=tuple(ended),
        appeared=tuple(news.host for news in by_host.values() if news.first),
        vanished=tuple(sorted(before.hosts - visited)),
        replaced=tuple(news.host for news in by_host.values() if news.replaced),
    )


def _standing(news: FindingNews, report: HostReport, before: Before) -> StandingTrouble:
    finding = report.findings[news.place] if news.place >= 0 else None
    new = news.news is News.NEW or news.since_visit > before.seen.get(report.host, 0)
    return StandingTrouble(
        host=report.host,
        place=news.place,
        check=news.check,
        verdict=finding.verdict if finding else Verdict.UNKNOWN,
        severity=news.severity,
        new=new,
        changed=news.news is News.CHANGED and not new,
        since=news.since,
        began=news.began,
        after_plan=news.after_plan,
    )


def _ended(news: FindingNews, report: HostReport) -> Ended:
    before = news.before
    what = news.why
    if before is not None:
        expected = (
            f", expected {before.text(before.expected)}" if before.expected is not None else ""
        )
        what = (
            f"{before.text(before.actual)}{expected}" if before.actual is not None else before.why
        )
    return Ended(
        host=report.host,
        check=news.check,
        subject=before.subject if before else NODE,
        severity=news.severity,
        verdict=before.verdict if before else Verdict.UNKNOWN,
        fixed=news.news is News.FIXED,
        since=news.since,
        began=news.began,
        what=brief(what, LONGEST),
    )


def marks_of(run: Run) -> Marks:
    """The marks that reports set; none if there is no run before."""
    if not run.news or not run.news.since:
        return Marks()
    return Marks(
        findings=frozenset((e.host, e.place) for e in run.news.standing if e.new and e.place >= 0),
        hosts=frozenset(e.host for e in run.news.standing if e.new and e.place < 0),
        standing={(trouble.host, trouble.place): trouble for trouble in run.news.standing},
    )


def words(run: Run) -> str:
    """`new since last run: 3, fixed: 2`, without zeros except for `new`."""
    news = run.news
    if not news or not news.since:
        return ""
    numbers = {
        "changed": sum(trouble.changed for trouble in news.standing),
        "fixed": len(fixed_troubles(news)),
        "resolved": len(resolved_troubles(news)),
        "no longer judged": sum(not ended.fixed for ended in news.ended),
        "flapping": len(flapping_hosts(news)),
        "hosts judged again": len(rejudged_hosts(news)),
        "hosts appeared": len(news.appeared),
        "hosts replaced": len(news.replaced),
        "hosts vanished": len(news.vanished),
    }
    texts = [f"{word}: {number:,}" for word, number in numbers.items() if number]
    return ", ".join([f"new since last run: {count_new(news):,}", *texts])


def by_host(run: Run) -> ByHost:
    """The open troubles of each host, by their places."""
    troubles: dict[str, dict[int, StandingTrouble]] = {}
    for trouble in run.news.standing if run.news else ():
        troubles.setdefault(trouble.host, {})[trouble.place] = trouble
    return troubles


def count_new(news: RunNews) -> int:
    """New troubles: findings, and hosts that can no longer be judged."""
    return sum(trouble.new for trouble in news.standing)


def fixed_troubles(news: RunNews) -> tuple[Ended, ...]:
    """Failures that are ok now."""
    return tuple(ended for ended in _ended_troubles(news) if ended.verdict is Verdict.FAIL)


def resolved_troubles(news: RunNews) -> tuple[Ended, ...]:
    """Findings that were unknown and are ok now."""
    return tuple(ended for ended in _ended_troubles(news) if ended.verdict is Verdict.UNKNOWN)


def _ended_troubles(news: RunNews) -> tuple[Ended, ...]:
    return tuple(ended for ended in news.ended if ended.fixed and ended.check)


def rejudged_hosts(news: RunNews) -> tuple[Ended, ...]:
    """Hosts that are judged again."""
    return tuple(ended for ended in news.ended if ended.fixed and not ended.check)


def flapping_hosts(news: RunNews) -> list[str]:
    """The host of each trouble that comes and goes."""
    ended = [trouble.host for trouble in news.ended if trouble.began]
    return [*(trouble.host for trouble in news.standing if trouble.began), *ended]


def nights(since: str, until: str) -> int | None:
    """The number of nights between two moments, by the UTC calendar."""
    first, last = seconds_of(since), seconds_of(until)
    if first is None or last is None:
        return None
    return max(0, int(last // DAY) - int(first // DAY))


def since_words(times: Iterable[str], now: str) -> str:
    """`since Nov 3, 19 nights`; of several that differ, `since Nov 3 to Nov 20, 19 nights`."""
    known = sorted(filter(None, times), key=lambda at: seconds_of(at) or 0.0)
    if not known:
        return ""
    passed = nights(known[0], now)
    first, last = _day(known[0], now), _day(known[-1], now)
    text = first if first == last else f"{first} to {last}"
    if not passed:
        return f"since {text}"
    return f"since {text}, {passed:,} {'night' if passed == 1 else 'nights'}"


def _day(at: str, now: str) -> str:
    """`Nov 3`, `2025-11-03`, or of the same day `02:31 UTC`."""
    seconds = seconds_of(at)
    if seconds is None:
        return "an unknown time"
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    today = datetime.fromtimestamp(seconds_of(now) or seconds, timezone.utc)
    if moment.date() == today.date():
        return f"{moment:%H:%M} UTC"
    return f"{moment:%b} {moment.day}" if moment.year == today.year else f"{moment:%Y-%m-%d}"
