"""Every format tells that a host took two visits, and how the first one ended."""

import pytest

from nodevet.author.host_sheet import host_sheet
from nodevet.model import Finding, HostReport, Status, Verdict
from nodevet.model.run import Run
from nodevet.sheet.terminal import render
from nodevet.vet import formats

FIRST = "timed out after 10 s (waiting for the SSH banner)"
VETTED = HostReport(
    host="gpu1",
    status=Status.VETTED,
    first_try=FIRST,
    findings=(Finding(verdict=Verdict.OK, check="gpu_count"),),
)
GONE = HostReport(host="gpu2", status=Status.UNREACHABLE, why="connection refused", first_try=FIRST)
SAME = HostReport(host="gpu3", status=Status.UNREACHABLE, why="no route", first_try="no route")
ONCE = HostReport(host="gpu4", status=Status.UNREACHABLE, why="name not found")


def run(*hosts: HostReport) -> Run:
    started = "2026-11-22T04:00:00+00:00"
    return Run(id="r", nodevet="1", started=started, seconds=1, hosts=hosts)


@pytest.mark.parametrize(
    "name",
    ["table", "html", "json", "jsonl", "markdown", "diff", "junit", "nagios", "prometheus"],
)
def test_every_format_reports_that_a_host_needed_a_second_try(name: str) -> None:
    both = formats.render(name, run(VETTED, GONE, SAME, ONCE))
    if name == "prometheus":
        assert 'nodevet_host_tries{host="gpu1"} 2.0' in both
        assert 'nodevet_host_tries{host="gpu4"}' not in both
    elif name in ("html", "json", "jsonl", "junit"):
        assert both.count(FIRST) >= 2
    else:
        assert f"connection refused (second try; first: {FIRST})" in both
        assert "no route (second try)" in both
        assert "name not found (" not in both
    if name in ("table", "markdown", "diff", "nagios"):
        assert "second try: 3 hosts, 1 of them vetted" in both
        assert "second try" not in formats.render(name, run(ONCE))


def test_the_page_of_a_host_shows_how_its_first_try_ended() -> None:
    told = render(host_sheet(run(VETTED), VETTED))
    assert f"first try  {FIRST}" in told
    assert "first try" not in render(host_sheet(run(ONCE), ONCE))
