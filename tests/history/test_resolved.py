"""What was unknown and is ok the next night is resolved: neither fixed nor no longer judged."""

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from recorded import record, report, run

from nodevet.cli import nodevet
from nodevet.model import Finding, HostReport, Severity, Subject, Verdict
from nodevet.model.changes import News
from nodevet.model.run import Run
from nodevet.store import Store
from nodevet.store.records.model import SpanEnd
from nodevet.vet.news import Before, fixed_troubles, news_of, resolved_troubles, words
from nodevet.vet.use.notify import NewsFilter, message

GPU = Subject(kind="gpu", id="0", uuid="GPU-1", bus_id="0000:19:00.0")


def said(verdict: str, subject: Subject) -> Finding:
    return Finding(verdict=Verdict(verdict), check="power_limit", subject=subject, why="timed out")


def visit(night: int, *findings: Finding) -> HostReport:
    return replace(report(night=night), findings=findings)


CASES = {
    "the whole section, then each GPU": (Subject(), GPU),
    "the same GPU": (GPU, GPU),
    "a GPU whose UUID was not read": (Subject(kind="gpu", id="0", bus_id="0000:19:00.0"), GPU),
    "a GPU of which only the index was read": (Subject(kind="gpu", id="0"), GPU),
}


@pytest.mark.parametrize("name", CASES)
def test_e19_an_unknown_that_became_ok_is_resolved_in_every_command(
    store: Store, url: str, name: str
) -> None:
    then, now = CASES[name]
    first = visit(0, said("unknown", then))
    second = visit(1, said("ok", now))
    record(store, 0, first)
    (news,) = record(store, 1, second)
    assert [each.news for each in news.findings] == [News.FIXED]
    assert [span.end for span in store.spans()] == [SpanEnd.OK]
    this = Run(
        id=run(1).id,
        nodevet="0",
        started=run(1).started,
        seconds=1.0,
        fail_on=Severity.WARNING,
        hosts=(second,),
    )
    told = news_of(this, [news], Before(id=run(0).id, started=run(0).started))
    assert not fixed_troubles(told) and [each.check for each in resolved_troubles(told)] == [
        "power_limit"
    ]
    with_news = replace(this, news=told)
    assert "resolved: 1" in words(with_news) and "no longer judged" not in words(with_news)
    notice = message(with_news, "nightly", NewsFilter())
    assert notice and "RESOLVED power_limit" in notice.body
    shown = {
        command: CliRunner().invoke(nodevet, [*command.split(), "--store", url]).stdout
        for command in ("diff", "runs", "history gpu001")
    }
    assert "resolved: 1" in shown["diff"] and "Resolved" in shown["diff"]
    assert "no longer judged" not in shown["diff"] and "RESOLVED" in shown["runs"]
    assert "resolved" in shown["history gpu001"] and "gone" not in shown["history gpu001"]


def test_e19_an_unknown_that_became_a_failure_is_new_and_not_gone(store: Store) -> None:
    record(store, 0, visit(0, said("unknown", Subject())))
    bad = (said("fail", GPU), said("ok", Subject(kind="gpu", id="1", uuid="GPU-2")))
    (news,) = record(store, 1, visit(1, *bad))
    assert [each.news for each in news.findings] == [News.NEW]
    assert [span.end for span in store.spans()] == [SpanEnd.FAIL, None]


def test_e19_an_unknown_of_a_removed_part_is_not_resolved_by_other_parts(store: Store) -> None:
    record(store, 0, visit(0, said("unknown", GPU)))
    other = Subject(kind="gpu", id="0", uuid="GPU-2", bus_id="0000:19:00.0")
    record(store, 1, visit(1, said("ok", other)))
    assert [span.end for span in store.spans()] == [SpanEnd.GONE]


def test_e19_a_failure_that_became_ok_is_fixed(store: Store, url: str) -> None:
    record(store, 0, report(findings={"governor": "fail"}))
    record(store, 1, report(night=1, findings={"governor": "ok"}))
    shown = CliRunner().invoke(nodevet, ["diff", "--store", url]).stdout
    assert "fixed: 1" in shown and "resolved" not in shown
