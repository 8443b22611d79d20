"""Whatever a run holds, its table names every host and every check that is not ok, whole, at any
width."""

import json
import re
from typing import Any

import msgspec
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml
from msgspec import structs
from remembered import remembered

from nodevet.base.printable import cells
from nodevet.model import NODE, Finding, HostFacts, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import Run, RunNews, StandingTrouble, exit_code
from nodevet.sheet.text import nodeset
from nodevet.vet import formats
from nodevet.vet.findings.fold import lines
from nodevet.vet.findings.totals import totals

TROUBLE = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED)
CHECKS = st.sampled_from(["gpu_lost", "xid", "gpu_count", "power_limit", "my_check"])
LOST = "NVML_ERROR_GPU_IS_LOST"
NUMBERS = st.integers(0, 4000)
VALUES = st.one_of(
    st.none(),
    NUMBERS,
    NUMBERS.map(lambda n: f"{n:,} MiB"),
    NUMBERS.map(lambda n: {"count": n}),
    st.lists(st.integers(0, 90), max_size=20),
    st.sampled_from(["x8", "550.90.07", LOST, "a, b", "0-31", "x" * 90, "\u65e5\u672c" * 20]),
)
SUBJECTS = st.one_of(
    st.just(NODE),
    st.integers(0, 3).map(lambda n: Subject(kind="gpu", id=str(n))),
    st.sampled_from([Subject(kind="sysctl", id="vm.a"), Subject(kind="cpufreq", id="0-63")]),
)
FINDINGS = st.builds(
    Finding,
    verdict=st.sampled_from(Verdict),
    check=CHECKS,
    subject=SUBJECTS,
    expected=VALUES,
    actual=VALUES,
    severity=st.sampled_from(Severity),
    why=st.sampled_from(["not said", f"gpu: {LOST}", "took 3 s", "took 40 s", "so long " * 20]),
    advice=st.sampled_from(["", "do this: then that; then more"]),
    cause=st.one_of(st.just(msgspec.UNSET), CHECKS),
)
LEAST = [severity for severity in Severity if severity is not Severity.SHADOW]
NAMES = st.sampled_from(
    [
        *(f"gpu{n:03}" for n in range(1, 12)),
        *(f"rack{a}-node{b}" for a in (1, 2) for b in range(8, 12)),
        *("gpu1", "gpu01", "10.0.0.9", "010", "10", "x-1-2", "x-2-2", "two words", "a[1]"),
    ]
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Hosts that share some findings, as those of a fleet do."""
    shared = st.sampled_from(draw(st.lists(FINDINGS, min_size=1, max_size=12)))
    hosts = []
    for name in draw(st.lists(NAMES, unique=True, max_size=12)):
        status = draw(st.sampled_from([*Status, *[Status.VETTED] * 12]))
        findings = draw(st.lists(shared, max_size=8)) if status is Status.VETTED else ()
        why = "" if status is Status.VETTED else draw(st.sampled_from(["refused", "gone"]))
        told = tuple(each for each in findings if each.severity is not Severity.SHADOW)
        shadow = tuple(each for each in findings if each.severity is Severity.SHADOW)
        hosts.append(
            HostReport(
                host=name, status=status, why=why, findings=told, shadow=shadow or msgspec.UNSET
            )
        )
    return Run(
        id="r",
        started="2026-11-22T05:20:00+00:00",
        nodevet="0",
        seconds=1.0,
        hosts=tuple(hosts),
        fail_on=draw(st.sampled_from(LEAST)),
    )


def folded(hosts: tuple[str, ...]) -> set[str]:
    """The hosts that a row's nodeset stands for."""
    names, *quoted = nodeset(hosts).split(', "')
    if names.startswith('"'):
        return {name.strip('"') for name in (names, *quoted)}
    unfolded = {str(name) for name in NodeSet(names, resolver=RESOLVER_NOGROUP)}
    return unfolded | {name.strip('"') for name in quoted}


@settings(deadline=None, max_examples=150)
@given(runs())
def test_every_host_and_every_check_that_is_not_ok_has_a_row(run: Run) -> None:
    rows = [(line, folded(line.hosts)) for line in lines(run)]
    for report in run.hosts:
        mine = [line for line, hosts in rows if report.host in hosts]
        assert not report.unjudged or any(not line.checks for line in mine)
        for finding in report.findings:
            about = [line for line in mine if finding.check in line.checks]
            assert about or finding.verdict not in TROUBLE
            if finding.verdict is Verdict.FAIL:
                failed = [line for line in about if line.label == "FAIL"]
                rank = finding.severity.rank
                assert any(line.severity.rank >= rank for line in failed)
                assert rank < run.fail_on.rank or any(line.fails for line in failed)
        if exit_code((report,), run.fail_on):
            assert any(line.fails for line in mine)
    assert all(hosts == set(line.hosts) for line, hosts in rows)
    assert sum(totals(run).hosts.values()) == len(run.hosts)


@settings(deadline=None, max_examples=80)
@given(runs(), runs())
def test_every_new_failure_has_a_row_marked_as_new(before: Run, after: Run) -> None:
    told = remembered(after, structs.replace(before, started="2026-11-21T02:00:00Z"))
    rows = [line for line in lines(told) if line.new]
    assert told.news
    new = [each for each in told.news.standing if each.new]
    for each in new:
        about = each.check and each.place >= 0
        assert any(
            each.host in line.hosts and (each.check in line.checks if about else not line.checks)
            for line in rows
        )
    assert sum(line.new for line in rows) <= len(new)


@settings(deadline=None, max_examples=60)
@given(runs(), st.sampled_from([None, 40, 80, 120, 200]), st.sampled_from(["", "advice", "quiet"]))
def test_the_table_shows_every_row_in_full_at_any_width(
    run: Run, width: int | None, asked: str
) -> None:
    text = formats.render("table", run, width=width, **{asked: True} if asked else {})
    for line in lines(run):
        if line.fails or asked != "quiet":
            for part in (line.what, nodeset(line.hosts), line.subjects, line.reason):
                assert squashed(part) in squashed(text)
    if width and width >= 80:
        wide = [line for line in text.splitlines() if cells(line) > width]
        assert all(len(line.split()) <= 3 for line in wide), wide


@settings(deadline=None, max_examples=40)
@given(runs())
def test_markdown_has_the_label_of_every_table_row(run: Run) -> None:
    text = formats.render("markdown", run)
    assert len(text) <= 65_536
    assert all(line.label in text for line in lines(run))


@settings(deadline=None, max_examples=150)
@given(runs(), st.booleans())
def test_every_format_says_that_a_run_did_not_pass(run: Run, interrupted: bool) -> None:
    run = structs.replace(run, interrupted=interrupted)
    xml = JUnitXml.fromstring(formats.render("junit", run))
    outcome = json.loads(formats.render("nico", run))["outcome"]
    totals_line = json.loads(formats.render("jsonl", run).splitlines()[-1])
    codes = {formats.exit_code(name, run) for name in ("table", "json", "markdown", "html")}
    assert codes == {run.exit_code, totals_line["exit_code"]}
    assert f"nodevet_run_exit_code {run.exit_code}.0" in formats.render("prometheus", run)
    assert (outcome == "pass", formats.exit_code("npd", run) == 0) == (run.exit_code == 0,) * 2
    assert run.exit_code == 0 or (xml.failures + xml.errors and formats.exit_code("nagios", run))


def squashed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_markdown_counts_the_hosts_that_it_cannot_all_name() -> None:
    failed = (Finding(verdict=Verdict.FAIL, check="c", severity=Severity.CRITICAL, expected=1),)
    hosts = tuple(
        HostReport(host=f"a{n}-{n * n}", status=Status.VETTED, findings=failed) for n in range(900)
    )
    run = Run(id="r", started="2026-11-22", nodevet="0", seconds=1.0, hosts=hosts)
    assert "| 900 hosts, `a" in formats.render("markdown", run)


def test_quiet_shows_an_unknown_check_if_it_is_the_only_finding_of_a_host() -> None:
    """However little it matters: the exit code is 3 for it."""
    unknown = Finding(verdict=Verdict.UNKNOWN, check="c", severity=Severity.INFO, why="not read")
    host = HostReport(host="a", status=Status.VETTED, findings=(unknown,))
    run = Run(id="r", started="2026-11-22", nodevet="0", seconds=1.0, hosts=(host,))
    assert run.exit_code == 3
    assert formats.render("table", run, quiet=True).startswith("UNKNOWN  c  not read  a  info\n")


def test_facts_of_a_host_continue_below_if_there_is_no_room() -> None:
    facts = HostFacts(links={"Gen5 x16": 7, "Gen5 x8 now, up to Gen5 x16": 1}, driver="580.105.08")
    host = HostReport(host="a", status=Status.VETTED, facts=facts)
    run = Run(id="r", started="2026-11-22", nodevet="0", seconds=1.0, hosts=(host,))
    text = formats.render("table", run, width=40)
    assert text.startswith(
        "PCIe    7 × Gen5 x16, 1 × Gen5 x8 now,\n        up to Gen5 x16\ndriver  580.105.08\n\n"
    )


LONG = ", ".join(f"module_{number:02}" for number in range(40))


def of_host(name: str, *findings: Finding) -> HostReport:
    return HostReport(host=name, status=Status.VETTED, findings=findings)


def run_of(*hosts: HostReport, **rest: Any) -> Run:
    return Run(id="r", started="2026-11-22", nodevet="0", seconds=1.0, hosts=hosts, **rest)


def test_everything_without_a_width_cuts_no_value_and_merges_measured_values() -> None:
    wrong = Finding(verdict=Verdict.FAIL, check="modules", expected=LONG, actual=f"{LONG}, more")
    whole = Finding(verdict=Verdict.OK, check="loaded", expected=LONG, actual=LONG)
    none = Finding(verdict=Verdict.NOT_APPLICABLE, check="mig", why=f"there is none {LONG}")
    warm = {"verdict": Verdict.OK, "check": "heat", "unit": "C"}
    hot = [Finding(expected=40 + n, actual=40 + n, **warm) for n in range(8)]
    hosts = [of_host(f"n{n}", wrong, whole, none, hot[n]) for n in range(8)]
    text = formats.render("table", run_of(*hosts), everything=True)
    assert f"{LONG}, more, expected {LONG}  8 hosts  n[0-7]" in text
    assert f"OK    loaded   {LONG}  8 hosts  n[0-7]" in text
    assert f"N/A   mig      there is none {LONG}  8 hosts  n[0-7]" in text
    (heat,) = [line.split() for line in text.splitlines() if " heat " in line]
    assert " ".join(heat) == "OK heat 40 to 47 C 8 hosts n[0-7]"
    few = run_of(*hosts[:3])
    assert formats.render("table", few, everything=True).count(" heat ") == 3


def test_a_narrow_table_says_since_when_only_for_new_failures() -> None:
    failed = Finding(verdict=Verdict.FAIL, check="power_limit", expected="x" * 20, actual="y" * 20)
    hosts = [of_host(f"gpu{n}", failed) for n in range(2)]
    since = "2026-11-03T02:00:00Z"
    for new in (False, True):
        standing = [
            StandingTrouble(host=f"gpu{n}", place=0, since=since, new=new and n == 0)
            for n in range(2)
        ]
        news = RunNews(since="2026-11-21T02:00:00Z", standing=tuple(standing))
        run = run_of(*hosts, news=news)
        assert ("since Nov 3" in formats.render("table", run, width=80)) == new
        assert "since Nov 3, 19 nights" in formats.render("table", run)
