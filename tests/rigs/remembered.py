"""A run as reports show it if another one was recorded before it."""

from collections.abc import Iterator

from msgspec import structs

from nodevet.model import Finding, HostReport, Severity, Status, Verdict
from nodevet.model.changes import FindingNews, HostNews, News
from nodevet.model.run import Run
from nodevet.vet.news import Before, news_of

TROUBLE = (Verdict.FAIL, Verdict.UNKNOWN)


def remembered(run: Run, before: Run) -> Run:
    """With what is new, fixed, and stood before."""
    earlier = {host.host: host for host in before.hosts}
    found = (
        HostNews(
            host=host.host,
            first=host.host not in earlier,
            findings=tuple(_findings(host, earlier.get(host.host), run, before)),
        )
        for host in run.hosts
    )
    told = Before(
        id=before.id,
        started=before.started,
        nodevet=before.nodevet,
        hosts=frozenset(earlier),
        seen=dict.fromkeys(earlier, 1),
    )
    return structs.replace(run, news=news_of(run, found, told))


def _findings(
    host: HostReport, old: HostReport | None, run: Run, before: Run
) -> Iterator[FindingNews]:
    now = {"since": run.started, "since_visit": 0}
    then = {"since": before.started, "since_visit": 1}
    whole = {"key": "", "check": "", "severity": Severity.CRITICAL}
    lost, was_lost = bool(host.unjudged), bool(old and old.unjudged)
    if lost or was_lost:
        news = News.STILL if lost and was_lost else News.NEW if lost else News.FIXED
        why = host.unjudged if lost or old is None else old.unjudged
        yield FindingNews(news=news, why=why, **whole, **(then if was_lost else now))
    if host.status is not Status.VETTED:
        return
    known: dict[str, list[Finding]] = {}
    for finding in old.findings if old else ():
        if finding.verdict in TROUBLE:
            known.setdefault(finding.key, []).append(finding)
    for place, finding in enumerate(host.findings):
        waiting = known.get(finding.key, [])
        about = {"key": finding.key, "check": finding.check, "severity": finding.severity}
        if finding.verdict in TROUBLE and waiting:
            past = waiting.pop(0)
            same = (past.verdict, past.actual) == (finding.verdict, finding.actual)
            news = News.STILL if same else News.CHANGED
            yield FindingNews(news=news, place=place, before=past, **about, **then)
        elif finding.verdict in TROUBLE:
            yield FindingNews(news=News.NEW, place=place, **about, **now)
        elif waiting:
            news = News.FIXED if finding.verdict is Verdict.OK else News.GONE
            yield FindingNews(news=news, place=place, before=waiting.pop(0), **about, **then)
