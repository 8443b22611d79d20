"""`nodevet backtest`: what another baseline would have said of the five nights."""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import five_nights
import pytest
from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.fleet import Visit
from nodevet.model import Host, HostReport, Severity, Status, Verdict
from nodevet.past.backtest import Backtest, Judged, PastFailures, Tally, check_of
from nodevet.past.use.backtest import Nights, _start_judge, run_backtest
from nodevet.store import Store, open_store
from nodevet.store.records.model import (
    FindingSpan,
    Moment,
    RecordedRun,
    RecordedVisit,
    RunState,
    SpanEnd,
)
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.judge_visit import judge_visit
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
            started=five_nights.start_time(night).isoformat(),
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
        at=five_nights.start_time(night).timestamp(),
        known=known,
        pruned=not known,
        gpus=8,
        fails=tuple(now.split()),
        then=tuple(then.split()),
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


def test_a_pruned_visit_is_not_counted_as_judged() -> None:
    first, second = of(visit(1), visit(2, known=False)).nights
    assert (first.judged, first.pruned, second.judged, second.pruned) == (1, 0, 0, 1)


def test_nights_in_a_row_are_one_alarm_which_is_rated_after_its_window() -> None:
    found = of(*(visit(night, now="a/node" if night in (1, 2, 4) else "") for night in range(1, 6)))
    assert (found.alarms, found.alarms_over, found.alarms_right) == (2, 1, 0)
    assert found.failures == ()


def test_added_and_removed_findings_are_counted_per_check() -> None:
    found = of(visit(1, now="a/node b/node", then="b/node c/node"))
    assert [(each.check, each.added, each.removed) for each in found.checks] == [
        ("a", 1, 0),
        ("c", 0, 1),
    ]
    assert [line.check for line in found.added] == ["a"]
    assert [line.check for line in found.removed] == ["c"]
    assert found.nights[0].cleared == ()


def test_e19_a_finding_that_came_back_after_a_fix_is_not_a_new_failure() -> None:
    visits = [visit(night, now="a/node", then="a/node") for night in range(1, 4)]
    second, third = (
        Moment(at=five_nights.start_time(night).isoformat(), run=five_nights.run_id(night))
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


def test_without_earlier_verdicts_there_are_no_past_failures() -> None:
    assert PastFailures([]).failing_keys("h", 0.0, "b", Severity.INFO) == ()


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


def test_nights_judged_from_cache_equal_nights_judged_alone(tmp_path: Path) -> None:
    """Random nights: sections change and change back, readings and GPUs are lost, a machine is
    replaced; with a waiver, groups and a check of the project's own."""
    context = random_baselines(tmp_path)
    url = f"sqlite:///{tmp_path / 'history.sqlite'}"
    draw = random.Random(24)
    documents = [five_nights.document(*kept) for kept in product(("gpu003", "a100-06"), (1, 2))]
    with open_store(url) as store:
        for night in range(1, 13):
            begun = runs(night)[-1]
            recorder = store.begin(begun)
            for name in ("one", "two", "three"):
                text = json.dumps(mutated(draw, draw.choice(documents))).encode()
                groups = (draw.choice(("gold", "iron")),)
                at = five_nights.start_time(night).isoformat()
                report = HostReport(
                    host=name, status=Status.VETTED, baseline="x", groups=groups, arrived=at
                )
                recorder.take(report, text)
            recorder.finish(replace(begun, state=RunState.COMPLETE))
            assert recorder.broken is None
        nights = {(pair[0].host, pair[0].run): pair for pair in every_visit(store)}
    asked = Nights(store=url, days=90)
    judge = _start_judge(asked, context, runs(12), PastFailures([]))
    ids = [run.id for run in runs(12)]
    fails = Counter[str]()
    for host, visits in judge(("one", "two", "three")):
        assert len(visits) == 12
        for visit in visits:
            recorded, text = nights[host, ids[visit.run]]
            answer = Visit(host, Status.VETTED, "", text, 1.0, visit.at)
            alone = Host(name=host, groups=frozenset(recorded.groups), expect_hostname=False)
            report = judge_visit(answer, alone, context).report
            assert visit.gpus == sum(report.facts.gpus.values() if report.facts else ())
            failed = [
                finding.key
                for finding in report.findings
                if finding.verdict is Verdict.FAIL
                and finding.severity.rank >= Severity.WARNING.rank
            ]
            assert list(visit.fails) == list(dict.fromkeys(failed))
            fails.update(map(check_of, visit.fails))
    assert {"own_rule", "ecc_errors", "disk_space", "thermal"} <= fails.keys()


def every_visit(store: Store) -> Iterator[tuple[RecordedVisit, bytes]]:
    for run in store.runs():
        for visit, text in store.evidence(run.id):
            assert text is not None
            yield visit, text


def random_baselines(folder: Path) -> VetContext:
    """Two baselines that groups choose, with a waiver and a check of the project's own."""
    (folder / "checks").mkdir()
    (folder / "checks" / "own_rule.py").write_text(OWN_RULE)
    (folder / "baselines").mkdir()
    for group, most in (("gold", 30), ("iron", 80)):
        (folder / "baselines" / f"{group}.yaml").write_text(
            f"""nodevet: 1
title: Nodes of {group}
extends: nvidia-h100-sxm
applies: {{groups: [{group}]}}
expect:
  own_rule: {{most: {most}}}
  ecc_errors: {{aggregate_corrected: {most}}}
  thermal: {most}
waivers:
  - {{check: ecc_errors, any: true, owner: ops, reason: known, until: 2099-01-01, hosts: one}}
"""
        )
    return open_context(folder, ())


OWN_RULE = """\"\"\"No GPU draws more than so many watts.\"\"\"

from nodevet.evidence.gpu import Gpus
from nodevet.model import NODE, Check, CheckParams, compare


class Params(CheckParams):
    bare = "most"
    most: int


def judge(evidence, params):
    data = evidence[Gpus].data
    draws = [gpu.power_draw_mw or 0 for gpu in (data.gpus if data else None) or ()]
    yield compare(NODE, expected=False, actual=max(draws, default=0) > params.most * 1000)


CHECK = Check(params=Params, reads=("gpu.gpus[].uuid",), judge=judge)
"""


def mutated(draw: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """The document with other readings, and with some values changed or lost, anywhere."""
    document = json.loads(json.dumps(document))
    for gpu in document["sections"]["gpu"]["data"]["gpus"]:
        gpu |= {
            "temperature_margin_c": draw.choice((2, 40)),
            "power_draw_mw": draw.randint(1, 90_000),
        }
    for filesystem in document["sections"]["filesystems"]["data"]["filesystems"]:
        filesystem["available_b"] = draw.choice((0, 1 << 40))
    document["sections"]["host"]["data"]["uptime_s"] = draw.choice((60.0, 90_000.0))
    for _ in range(draw.randrange(4)):
        section = draw.choice(list(document["sections"].values()))
        value: Any = section.get("data")
        for _ in range(draw.randrange(1, 5)):
            if isinstance(value, dict) and value:
                key = draw.choice(list(value))
            elif isinstance(value, list) and value:
                key = draw.randrange(len(value))
            else:
                break
            if draw.random() < 0.4 or not isinstance(value[key], (dict, list)):
                change(draw, value, key)
                break
            value = value[key]
    return document


def change(draw: random.Random, owner: Any, key: Any) -> None:
    if draw.random() < 0.3:
        del owner[key]
    elif isinstance(owner[key], bool):
        owner[key] = not owner[key]
    elif isinstance(owner[key], (int, float)):
        owner[key] = owner[key] * draw.choice((0, 1, 2, 1000)) + draw.choice((-1, 0, 1, 500))
    else:
        owner[key] = draw.choice((None, [], "other", owner[key]))


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
    assert len(found.failures) == 6
    assert [each.check for each in found.checks] == ["ecc_errors"]


def test_shadow_findings_do_not_count_as_alarms(url: str, tmp_path: Path) -> None:
    text = (five_nights.READ / "site-h100.yaml").read_text()
    (tmp_path / "b.yaml").write_text(text + "severity: {power_limit: shadow}\n")
    context = open_context(tmp_path, [str(tmp_path / "b.yaml")])
    found = under(url, context, targets=Targets(names=("gpu005",)))
    assert [(each.check, each.added, each.removed) for each in found.checks] == [
        ("power_limit", 0, 3)
    ]


def test_the_number_of_nights_is_limited_and_unknown_checks_are_refused(url: str) -> None:
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


def test_backtest_reports_new_alarms_on_the_command_line(
    nodevet: Past, tighter: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    done = nodevet("backtest", "-b", tighter, "gpu[001-012]", "--format", f"html:{page}")
    assert done.returncode == 0
    assert "New alarms of the last night" in page.read_text()
    assert "so foreseeing is easy" in page.read_text()
    told = nodevet("backtest", "-b", tighter, "gpu[001-012]", "--nights", "1").stdout
    assert "gpu[004-009]" in told
    document = json.loads(
        nodevet("backtest", "-b", tighter, "gpu[001-012]", "--format", "json").stdout
    )
    assert document["added"] == [
        {"check": "packages", "hosts": [f"gpu{number:03d}" for number in range(4, 10)]}
    ]
    assert nodevet("backtest", "-b", tighter, "--series", "other").returncode == 2
