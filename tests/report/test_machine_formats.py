"""Formats that other programs read, read back with the readers of others."""

import re
from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from nodevet.model import (
    Finding,
    HostReport,
    Severity,
    Status,
    Subject,
    Verdict,
    compare,
    fail,
    unknown,
)
from nodevet.sheet import plugin
from nodevet.vet import formats
from nodevet.vet.findings.causes import follows_from
from nodevet.vet.formats import nagios, prometheus

CASES = ("healthy", "mixed", "one", "empty", "interrupted", "hostile")


@pytest.mark.parametrize("case", CASES)
def test_junit_has_a_suite_per_host_and_a_case_per_finding(case, cases):
    run = cases[case]
    text = formats.render("junit", run)
    ElementTree.fromstring(text)
    xml = JUnitXml.fromstring(text)
    suites = list(xml)
    assert len(suites) == max(1, len(run.hosts))
    for suite, host in zip(suites, run.hosts, strict=bool(run.hosts)):
        kinds = [type(test.result[0]) if test.result else None for test in suite]
        follows = follows_from(host, run.fail_on)
        told = [one for place, one in enumerate(host.findings) if place not in follows]
        verdicts = [finding.verdict.value for finding in told]
        skipped = verdicts.count("not_applicable") + verdicts.count("waived")
        assert kinds.count(Failure) == verdicts.count("fail")
        assert kinds.count(Skipped) == skipped + len(follows)
        extra = 0 if host.findings else 1
        assert kinds.count(Error) == verdicts.count("unknown") + extra
        assert kinds.count(None) == verdicts.count("ok")
    assert xml.tests == sum(len(list(suite)) for suite in suites)


def series(run):
    found = {}
    for family in text_string_to_metric_families(formats.render("prometheus", run)):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


@pytest.mark.parametrize("case", CASES)
def test_prometheus_parses_and_no_series_is_there_twice(case, cases):
    run = cases[case]
    found = series(run)
    status = [labels for name, labels in found if name == "nodevet_host_status"]
    assert len(status) == len(run.hosts)


def test_prometheus_says_what_the_run_says(cases):
    found = series(cases["mixed"])

    def value(name, **labels):
        return found[name, frozenset(labels.items())]

    def of(name):
        return next(host for host in cases["mixed"].hosts if host.host == name)

    assert value("nodevet_run_timestamp_seconds") == 1783987205
    assert value("nodevet_run_duration_seconds") == 4.125
    assert value("nodevet_run_hosts", outcome="fail") == 39
    assert value("nodevet_host_status", host="gpu120", status="unreachable") == 1
    assert value("nodevet_host_verdict", host="gpu120") == prometheus.RANK["unknown"]
    failed = sum(finding.verdict is Verdict.FAIL for finding in of("gpu013").findings)
    assert value("nodevet_host_findings", host="gpu013", verdict="fail") == failed
    (link,) = [
        finding
        for finding in of("gpu013").findings
        if finding.check == "pcie_link" and finding.verdict is Verdict.FAIL
    ]
    part = {"host": "gpu013", "check": "pcie_link", "kind": "gpu", "id": link.subject.id}
    part["uuid"] = link.subject.uuid or ""
    assert value("nodevet_finding_info", **part, verdict="fail") == 1
    assert value("nodevet_finding_severity", **part) == link.severity.rank
    worst = {host.host for host in cases["mixed"].hosts if fails(host, "pcie_link")}
    assert value("nodevet_check_hosts", check="pcie_link", verdict="fail") == len(worst)


def fails(host, check):
    return any(
        finding.check == check and finding.verdict is Verdict.FAIL for finding in host.findings
    )


def vetted(name, findings):
    return HostReport(host=name, status=Status.VETTED, findings=tuple(findings))


def test_prometheus_only_counts_what_is_ok(make):
    many = [Finding(verdict=Verdict.OK, check=f"check_{number}") for number in range(100)]
    hosts = [
        HostReport(host=f"gpu{number:03}", status=Status.VETTED, findings=tuple(many))
        for number in range(50)
    ]
    of_hosts = [labels for name, labels in series(make.run_of(*hosts)) if "host" in dict(labels)]
    assert len(of_hosts) <= 5 * len(hosts)


def test_prometheus_limits_the_finding_series_of_one_host(make):
    many = [
        Finding(verdict=Verdict.FAIL, check="x", subject=Subject(kind="gpu", id=str(number)))
        for number in range(prometheus.MOST_FINDINGS + 1)
    ]
    found = series(
        make.run_of(HostReport(host="gpu001", status=Status.VETTED, findings=tuple(many)))
    )
    infos = [name for name, _ in found if name == "nodevet_finding_info"]
    assert len(infos) == prometheus.MOST_FINDINGS
    labels = frozenset({("host", "gpu001"), ("verdict", "fail")})
    assert found["nodevet_host_findings", labels] == len(many)


def test_prometheus_omits_a_start_that_is_not_a_time(make):
    assert "nodevet_run_timestamp_seconds" not in formats.render(
        "prometheus", make.run_of(started="yesterday\n# HELP x")
    )


@pytest.mark.parametrize(
    ("severity", "verdict", "fail_on", "code"),
    [
        ("critical", "fail", "warning", 2),
        ("critical", "fail", "critical", 2),
        ("warning", "fail", "warning", 1),
        ("warning", "fail", "critical", 1),
        ("info", "fail", "warning", 0),
        ("info", "fail", "info", 1),
        ("critical", "unknown", "warning", 3),
        ("warning", "unknown", "critical", 1),
        ("critical", "ok", "warning", 0),
    ],
)
def test_nagios_status(severity, verdict, fail_on, code, make):
    findings = {
        "fail": fail(expected=1, actual=2),
        "unknown": unknown(why="dark"),
        "ok": compare(make.gpu(0), expected=1, actual=1),
    }
    from msgspec.structs import replace

    found = replace(findings[verdict], check="c", severity=Severity(severity))
    fine = replace(findings["ok"], check="d")
    run = make.run_of(make.vetted("a", (found, fine)), fail_on=Severity(fail_on))
    assert nagios.exit_code(run) == code
    assert formats.render("nagios", run).startswith(f"NODEVET {plugin.WORDS[code]} - ")


def test_nagios_is_never_ok_for_a_host_that_nobody_judged(make, cases):
    assert nagios.exit_code(make.run_of()) == 3
    assert nagios.exit_code(cases["interrupted"]) == 3
    for host in (make.vetted("a", ()), make.failed("a", Status.TIMEOUT, "late")):
        assert nagios.exit_code(make.run_of(make.vetted("b"), host)) == 3


@pytest.mark.parametrize("case", CASES)
def test_nagios_has_one_pipe_and_fits_its_buffer(case, cases):
    text = formats.render("nagios", cases[case])
    assert text.count("|") == 1
    assert "|" in text.splitlines()[0]
    assert len(text.encode()) < 8192
    performance = text.splitlines()[0].split(" | ")[1]
    assert all(
        re.fullmatch(r"[a-z_]+=[\d.]+s?;;;0(;\d+)?", item) for item in performance.split(" ")
    )


def test_nagios_says_what_it_leaves_out(make):
    hosts = [make.failed(f"n{i}", Status.TIMEOUT, f"reason {i} " + "x" * 90) for i in range(500)]
    text = formats.render("nagios", make.run_of(*hosts))
    shown = len(text.splitlines()) - 2
    assert text.endswith(f"and {500 - shown} lines more\n") or f"{500 - shown} lines" in text


def tokens(text):
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    for token in markdown.parse(text):
        yield token
        yield from token.children or ()


@pytest.mark.parametrize("case", CASES)
def test_markdown_has_no_live_text_from_a_node(case, cases):
    found = list(tokens(formats.render("markdown", cases[case])))
    kinds = {token.type for token in found}
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "code_block"}
    live = "".join(token.content for token in found if token.type == "text")
    assert not re.search(r"[@<>`|#]|script|octocat|https?:", live)


@pytest.mark.parametrize("case", CASES)
def test_markdown_tables_keep_their_columns(case, cases):
    rows, cells = [], 0
    for token in tokens(formats.render("markdown", cases[case])):
        if token.type == "tr_open":
            cells = 0
        elif token.type in ("td_open", "th_open"):
            cells += 1
        elif token.type == "tr_close":
            rows.append(cells)
    assert set(rows) <= {2, 6}


def test_markdown_code_holds_the_hostile_text_whole(cases, make):
    from nodevet.sheet.text import name

    found = list(tokens(formats.render("markdown", cases["hostile"])))
    code = "\n".join(token.content for token in found if token.type == "code_inline")
    for nasty in make.nasty:
        shown = name(nasty).replace("\\\\|", "\\\\x5c\\x7c") if "|" in nasty else name(nasty)
        assert shown in code or "|" in nasty
    fences = [token for token in found if token.type == "fence"]
    assert len(fences) == len(make.nasty)
    assert all(token.content.startswith("--- ") for token in fences)
