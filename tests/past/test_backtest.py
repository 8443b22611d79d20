"""`nodevet backtest`: what another baseline would have said of the five nights."""

import json
import subprocess
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import five_nights
import pytest
from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.model import Severity, Verdict
from nodevet.past.backtest import Backtest, Judged, PastFailures, Tally
from nodevet.past.use.backtest import Nights, run_backtest
from nodevet.store.records.model import FindingSpan, Moment, RecordedRun, RunState, SpanEnd
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.targets import Targets

Past = Callable[..., subprocess.CompletedProcess[str]]
DAY = 86_400.0


def refuse(killed: object, hosts: object) -> None:
    raise AssertionError((killed, hosts))


def under(url: str, context: VetContext, **asked: object) -> Backtest:
    return run_backtest(Nights(store=url, **{"days": 90, **asked}), context, killed=refuse)  # type: ignore[arg-type]


def early(tmp_path: Path) -> VetContext:
    """A rule that takes GPUs out at 30 corrected errors, which nobody asked then."""
    text = (five_nights.READ / "site-h100.yaml").read_text()
    (tmp_path / "early.yaml").write_text(
        text.replace("expect:", "expect:\n  ecc_errors: {aggregate_corrected: 30}")
    )
    return open_context(tmp_path, [str(tmp_path / "early.yaml")])


# --- the arithmetic ---


def runs(number: int) -> list[RecordedRun]:
    return [
        RecordedRun(
            id=five_nights.run_id(night),
            series="",
            started=five_nights.started(night).isoformat(),
            seconds=1.0,
            state=RunState.COMPLETE,
            nodevet="0",
            fail_on=Severity.WARNING,
            hosts=1,
            visited=1,
            outcomes={},
            baselines={},
        )
        for night in range(1, number + 1)
    ]


def visit(night: int, *, now: str = "", then: str = "", known: bool = True) -> Judged:
    return Judged(
        run=night - 1,
        host="h",
        at=five_nights.started(night).timestamp(),
        known=known,
        pruned=not known,
        gpus=8,
        fails=tuple(now.split()),
        then=tuple(then.split()),
        outcome="",
    )


def of(*visits: Judged, spans: Sequence[FindingSpan] = ()) -> Backtest:
    tally = Tally(runs(len(visits)))
    tally.add("h", visits)
    return tally.result(spans, baselines={}, within_days=2)


def test_gpu_hours_run_to_the_next_visit_that_is_judged() -> None:
    assert of(visit(1, now="a/node"), visit(2)).gpu_hours == 8 * 24
    assert of(visit(1, now="a/node"), visit(2, known=False), visit(3)).gpu_hours == 8 * 48
    assert of(visit(1), visit(2, now="a/node")).gpu_hours == 8 * 24  # to the next run, as usual
    found = of(visit(1, then="a/node"), visit(2))
    assert (found.gpu_hours_then, found.gpu_hours) == (8 * 24, 0)


def test_what_was_pruned_passed_nothing() -> None:
    first, second = of(visit(1), visit(2, known=False)).nights
    assert (first.judged, first.pruned, second.judged, second.pruned) == (1, 0, 0, 1)


def test_an_alarm_is_a_stretch_and_counts_once_its_time_is_over() -> None:
    found = of(*(visit(night, now="a/node" if night in (1, 2, 4) else "") for night in range(1, 6)))
    assert (found.alarms, found.alarms_over, found.alarms_right) == (2, 1, 0)
    assert found.precision == 0
    assert found.recall is None


def test_checks_that_come_and_go() -> None:
    found = of(visit(1, now="a/node b/node", then="b/node c/node"))
    assert [(each.check, each.added, each.removed) for each in found.checks] == [
        ("a", 1, 0),
        ("c", 0, 1),
    ]
    assert [line.check for line in found.added] == ["a"]
    assert [line.check for line in found.removed] == ["c"]
    assert found.nights[0].cleared == ()


def test_e19_what_came_back_after_a_fix_is_no_failure_of_its_own() -> None:
    visits = [visit(night, now="a/node", then="a/node") for night in range(1, 4)]
    second, third = (
        Moment(at=five_nights.started(night).isoformat(), run=five_nights.run_id(night))
        for night in (2, 3)
    )
    span = FindingSpan(
        host="h",
        baseline="b",
        key="a/node",
        check="a",
        verdict=Verdict.FAIL,
        severity=Severity.CRITICAL,
        finding=None,
        first=second,
        last=second,
        end=SpanEnd.CAME_BACK,
        ended=third,
        since_visit=2,
    )
    back = replace(span, first=third, last=third, since=third, end=None, after_plan="5f1c00aa")
    found = of(*visits, spans=[span, back])
    assert [each.began for each in found.failures] == [second.at]


def test_nothing_said_then_is_nothing() -> None:
    assert PastFailures([]).at("h", 0.0, "b", Severity.INFO) == ()


# --- the five nights ---


def test_by_the_same_baselines_nothing_changes(url: str) -> None:
    found = under(url, five_nights.context(5))
    assert [(night.then, night.now) for night in found.nights] == [
        (3, 3), (3, 3), (6, 6), (7, 7), (7, 7),
    ]  # fmt: skip
    assert not (found.checks or found.added or found.removed or found.alarms)
    assert found.gpu_hours == pytest.approx(found.gpu_hours_then)
    assert [night.judged for night in found.nights] == [18, 17, 18, 18, 18]
    assert [(each.host, each.check) for each in found.failures][:2] == [
        ("gpu003", "row_remapping"),
        ("a100-04", ""),
    ]


def test_a_rule_that_would_have_foreseen_a_failure(url: str, tmp_path: Path) -> None:
    found = under(
        url,
        early(tmp_path),
        checks=frozenset({"ecc_errors"}),
        targets=Targets(names=("gpu[001-012]",)),
        within_days=2.0,
    )
    foreseen = [each for each in found.failures if each.alarm]
    assert [(each.host, each.check, each.alarm) for each in foreseen] == [
        ("gpu003", "row_remapping", "ecc_errors")
    ]
    assert foreseen[0].days == pytest.approx(1.0, abs=0.01)
    assert found.lead_days == foreseen[0].days
    assert (found.alarms, found.alarms_over, found.alarms_right) == (2, 2, 1)
    assert found.recall == pytest.approx(1 / 6)
    assert [each.check for each in found.checks] == ["ecc_errors"]


def test_what_is_in_shadow_alarms_nobody(url: str, tmp_path: Path) -> None:
    text = (five_nights.READ / "site-h100.yaml").read_text()
    (tmp_path / "b.yaml").write_text(text + "severity: {power_limit: shadow}\n")
    context = open_context(tmp_path, [str(tmp_path / "b.yaml")])
    found = under(url, context, targets=Targets(names=("gpu005",)))
    assert [(each.check, each.added, each.removed) for each in found.checks] == [
        ("power_limit", 0, 3)
    ]


def test_some_nights_and_checks_that_are_not_asked(url: str) -> None:
    assert len(under(url, five_nights.context(5), days=2).nights) == 3
    with pytest.raises(UserError, match="no baseline of this backtest asks for it"):
        under(url, five_nights.context(5), checks=frozenset({"hugepages"}))
    with pytest.raises(UserError, match="none of the named hosts"):
        under(url, five_nights.context(5), targets=Targets(names=("nobody",)))


def test_hosts_and_groups_are_those_that_were_recorded(nodevet: Past, url: str) -> None:
    context = five_nights.context(5)
    every = under(url, context, days=1)
    assert every.hosts == len(five_nights.HOSTS)
    assert under(url, context, days=1, targets=Targets(limit=("@a100",))).hosts == 6
    assert under(url, context, days=1, targets=Targets(limit=("!gpu001",))).hosts == every.hosts - 1
    named = Targets(names=("gpu[001-004]", "new1"), limit=("!gpu002",))
    assert under(url, context, days=1, targets=named).hosts == 3
    done = nodevet("backtest", "--limit", "@nobody")
    assert done.returncode == 2
    assert "@nobody" in done.stderr


def test_it_does_not_matter_how_many_processes_judge(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = under(url, five_nights.context(5))
    monkeypatch.setattr("nodevet.past.use.backtest.WORTH", 1)
    monkeypatch.setattr("nodevet.past.use.backtest.cores", lambda: 3)
    told: list[str] = []

    class Heard(VetListener):
        def advanced(self, host: str) -> None:
            told.append(host)

    spread = run_backtest(
        Nights(store=url, days=90),
        five_nights.context(5),
        killed=refuse,
        watched=lambda total: nullcontext(Heard()),
    )
    assert spread == alone
    assert sorted(told) == sorted(five_nights.HOSTS)


def test_on_the_command_line(nodevet: Past, tighter: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = nodevet("backtest", "-b", tighter, "gpu[001-012]", "--format", f"html:{page}")
    assert done.returncode == 0
    assert "New alarms of the last night" in page.read_text()
    assert "that makes foreseeing easy" in page.read_text()
    told = nodevet("backtest", "-b", tighter, "gpu[001-012]", "--nights", "1").stdout
    assert "gpu[004-009]" in told
    document = json.loads(
        nodevet("backtest", "-b", tighter, "gpu[001-012]", "--format", "json").stdout
    )
    assert document["added"] == [
        {"check": "packages", "hosts": [f"gpu{number:03d}" for number in range(4, 10)]}
    ]
    assert nodevet("backtest", "-b", tighter, "--series", "other").returncode == 2
