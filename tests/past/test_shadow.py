"""A check of severity shadow is judged and recorded, and is of no consequence."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.fix.plan.candidates import Draft, Rules, VettedNode, draft
from nodevet.fleet import Visit
from nodevet.model import MORE, CheckParams, Host, Severity, Status, Verdict
from nodevet.model.baseline import Baseline, Expectation
from nodevet.model.run import Run
from nodevet.vet import formats
from nodevet.vet.findings.shadow import shadowed
from nodevet.vet.findings.totals import totals
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import judge_visit
from nodevet.vet.use.vet import vet_saved
from planned_fleet import NOW, capped, evidence

TODAY = date(2026, 11, 21)
CATALOG = Catalog()
BASELINE = """\
nodevet: 1
expect:
  power_limit: 700
  cpu_governor: performance
fix: [power_limit, cpu_governor]
"""
NODES = {
    "good": evidence("good", [{}, {}], "performance", "madvise"),
    "capped": evidence("capped", [capped(500_000), {}], "performance", "madvise"),
    "slow": evidence("slow", [{}], "powersave", "always"),
    "blind": {"schema": 1, "probe": "0", "sections": {}},
}


def site(folder: Path, text: str) -> Baseline:
    (folder / "site.yaml").write_text(text)
    (found,) = load([str(folder / "site.yaml")], folders=[], catalog=CATALOG)
    return found


def asked_without_words() -> list[Expectation]:
    found = []
    for check in CATALOG.ids:
        try:
            params = CATALOG.check(check).params()
        except (TypeError, ValueError):
            continue
        found.append(
            Expectation(check=check, params=params, severity=Severity.SHADOW, origin="", fix=True)
        )
    return found


HOSTS = tuple(Host(name=name, expect_hostname=False) for name in NODES)
VISITS = tuple(
    Visit(name, Status.VETTED, "", json.dumps(document).encode(), 0.1)
    for name, document in NODES.items()
)


def judged(baseline: Baseline, catalog: Catalog = CATALOG) -> Run:
    context = VetContext(baselines=(baseline,), catalog=catalog, today=TODAY, chosen=baseline)
    run = vet_saved(HOSTS, VISITS, context, fail_on=Severity.INFO)
    return replace(run, id="same", seconds=0.0, started="2026-11-21T00:00:00+00:00")


def planned(baseline: Baseline) -> Draft:
    context = VetContext(baselines=(baseline,), catalog=CATALOG, today=TODAY, chosen=baseline)
    nodes = []
    for visit, host in zip(VISITS, HOSTS, strict=True):
        one = judge_visit(visit, host, context)
        nodes.append(VettedNode(report=one.report, evidence=one.evidence, baseline=baseline))
    return draft(nodes, CATALOG, Rules(id="0a1b2c3d", author="a", now=NOW, nodevet="0"))


@given(
    extra=st.lists(st.sampled_from(asked_without_words()), min_size=1, max_size=12),
    first=st.booleans(),
)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_shadow_findings_change_no_verdict_exit_code_or_report(
    tmp_path: Path, extra: list[Expectation], first: bool
) -> None:
    plain = site(tmp_path, BASELINE)
    wishes = (*extra, *plain.expectations) if first else (*plain.expectations, *extra)
    tried = replace(plain, expectations=wishes)
    without, with_it = judged(plain), judged(tried)
    assert [replace(one, shadow=UNSET) for one in with_it.hosts] == list(without.hosts)
    assert all(one.shadow for one in with_it.hosts)
    assert with_it.exit_code == without.exit_code
    assert totals(with_it) == totals(without)
    for name in ("table", "markdown", "diff", "junit", "nagios"):
        assert formats.render(name, with_it) == formats.render(name, without)
    before, after = planned(plain), planned(tried)
    assert after.candidates == before.candidates
    assert (after.conflicts, after.withheld, after.left) == (
        before.conflicts,
        before.withheld,
        before.left,
    )


def test_a_host_judged_only_by_shadow_checks_is_not_ok(tmp_path: Path) -> None:
    every = site(tmp_path, BASELINE + "severity: {power_limit: shadow, cpu_governor: shadow}\n")
    run = judged(every)
    assert {one.outcome.value for one in run.hosts} == {"unknown"}
    assert {one.unjudged for one in run.hosts} == {
        "nothing was judged: every check has severity shadow"
    }
    assert run.exit_code == 3


def test_shadow_findings_do_not_displace_other_findings(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(
        "from nodevet.model import Check, CheckParams, Severity, Subject, fail, ok\n"
        "def judge(evidence, params):\n"
        "    yield from (fail(Subject(kind='part', id='tried')) for _ in range(5000))\n"
        "    yield fail(Subject(kind='part', id='real'))\n"
        "CHECK = Check(params=CheckParams, reads=(), judge=judge,\n"
        "    severities=lambda params: {'tried': Severity.SHADOW})\n"
    )
    wish = Expectation(
        check="many", params=CheckParams(), severity=Severity.CRITICAL, origin="b.yaml:1"
    )
    run = judged(Baseline(name="b", path="b.yaml", expectations=(wish,)), Catalog([tmp_path]))
    for one in run.hosts:
        assert [finding.subject.id for finding in one.findings] == ["real"]
        assert one.shadow[-1].subject == MORE
        assert {finding.severity for finding in one.shadow or ()} == {Severity.SHADOW}


def test_shadow_findings_are_shown_with_the_shadow_option(tmp_path: Path) -> None:
    tried = site(tmp_path, BASELINE + "severity: {cpu_governor: shadow}\n")
    run = judged(tried)
    rows = {row.label: row for row in shadowed(run)}
    assert rows["SHADOW FAIL"].hosts == ("slow",)
    assert rows["SHADOW FAIL"].check == "cpu_governor"
    assert rows["SHADOW UNKNOWN"].hosts == ("blind",)
    assert not any(row.fails for row in rows.values())
    for name in ("table", "markdown"):
        assert "SHADOW FAIL" in formats.render(name, run, shadow=True)
        assert "cpu_governor" not in formats.render(name, run)
    assert "In shadow" in formats.render("html", run)
    assert 'nodevet_shadow_findings{check="cpu_governor",host="slow",verdict="fail"} 1.0' in (
        formats.render("prometheus", run)
    )
    back, _ = formats.read(formats.render("json", run).encode())
    assert [one.verdict for one in back.hosts[2].shadow] == [Verdict.FAIL]
    assert formats.read(formats.render("jsonl", run, everything=True))[0].hosts == run.hosts


@pytest.fixture
def nodevet(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    saved = tmp_path / "saved"
    saved.mkdir()
    for name, document in NODES.items():
        if name != "blind":
            (saved / f"{name}.json").write_text(json.dumps(document))

    def run(*words: object) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "nodevet", *map(str, words), "--project", tmp_path],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "100"},
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    return run


def test_check_shows_shadow_findings_with_the_shadow_option(
    nodevet: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    site(tmp_path, BASELINE + "severity: {cpu_governor: shadow, power_limit: shadow}\n")
    text = (tmp_path / "site.yaml").read_text()
    (tmp_path / "site.yaml").write_text(text.replace("expect:", "expect:\n  gpu_lost: {}"))
    judge = ("check", "--evidence", tmp_path / "saved", "-b", tmp_path / "site.yaml")
    quiet = nodevet(*judge, "--max-age", "none")
    told = nodevet(*judge, "--max-age", "none", "--shadow")
    assert quiet[0] == told[0]
    assert "power_limit" not in quiet[1]
    assert "SHADOW FAIL" in told[1]
    assert "500 W, expected 700 W" in told[1]
    code, said = nodevet("lint", tmp_path / "site.yaml")
    assert "power_limit has severity shadow, so nothing is planned" in said
    assert code == 0
