"""Saved runs without `--all`: findings that passed or do not apply are counted, and no others."""

import five_nights
import msgspec
import pytest
from msgspec.structs import replace
from remembered import remembered

from nodevet.fleet import Visit
from nodevet.model import CountedFindings, Host, Severity, Status, Verdict, fail, ok
from nodevet.model.run import Run
from nodevet.vet import formats
from nodevet.vet.findings.counted import counted, with_counts
from nodevet.vet.findings.totals import totals
from nodevet.vet.news import marks_of
from nodevet.vet.packed import PackedHosts
from nodevet.vet.use.context import open_context
from nodevet.vet.use.gate import verdict_of
from nodevet.vet.use.vet import vet_saved

BOTH = pytest.mark.parametrize("form", ["json", "jsonl"])


def saved(run: Run, form: str = "json") -> Run:
    """The run as it is read from its report without `--all`."""
    back, notes = formats.read(formats.render(form, run))
    assert notes == ()
    return back


@BOTH
@pytest.mark.parametrize("case", ["healthy", "mixed", "one", "empty", "interrupted"])
def test_saving_a_run_keeps_its_outcomes_totals_and_exit_code(form, case, cases):
    run = cases[case]
    back = saved(run, form)
    assert (back.exit_code, totals(back)) == (run.exit_code, totals(run))
    for whole, short in zip(run.hosts, back.hosts, strict=True):
        assert (short.verdict, short.outcome, short.why_unjudged) == (
            whole.verdict,
            whole.outcome,
            whole.why_unjudged,
        )


@pytest.mark.parametrize("name", ["table", "nagios", "prometheus"])
@pytest.mark.parametrize("case", ["healthy", "mixed", "one", "interrupted"])
def test_reports_that_need_no_values_are_the_same(case, name, cases):
    whole, short = (formats.render(name, run) for run in (cases[case], saved(cases[case])))
    assert sorted(short.splitlines()) == sorted(whole.splitlines())


def test_a_saved_host_whose_findings_passed_or_are_unknown_counts_as_judged(
    make,
):
    """An unknown finding below `fail_on` fails a run only if nothing else was judged."""
    found = (ok(check="a"), replace(fail(check="b"), verdict=Verdict.UNKNOWN, why="EIO"))
    low = tuple(replace(each, severity=Severity.INFO) for each in found)
    run = make.run_of(make.vetted("gpu1", low))
    assert run.exit_code == saved(run).exit_code == 0
    assert formats.render("table", saved(run)) == formats.render("table", run)


@BOTH
def test_marks_of_new_findings_stay_with_them_in_a_saved_run(form, cases, previous):
    run = remembered(cases["mixed"], previous)
    back = saved(run, form)

    def marked(of: Run):
        hosts = {host.host: host for host in of.hosts}
        return {hosts[host].findings[place].key for host, place in marks_of(of).findings}

    assert marked(back) == marked(run) != set()
    assert formats.render("table", back) == formats.render("table", run)
    assert "NEW" in formats.render("table", back)


def test_passed_shadow_checks_are_counted_too(make):
    tried = tuple(
        replace(each, severity=Severity.SHADOW)
        for each in (ok(check="tried"), fail(check="tried", actual=1, expected=2))
    )
    run = make.run_of(make.vetted("gpu1", (ok(check="real"),), shadow=tried))
    (host,) = saved(run).hosts
    assert host.findings == () and host.shadow == tried[1:]
    assert {(each.check, each.severity, each.count) for each in host.counted} == {
        ("real", Severity.CRITICAL, 1),
        ("tried", Severity.SHADOW, 1),
    }
    assert host.summary.shadow
    shown = formats.render("table", saved(run), everything=True, shadow=True)
    assert shown.count("1 finding, saved without details") == 2
    short, whole = (formats.render("prometheus", each) for each in (saved(run), run))
    assert sorted(short.splitlines()) == sorted(whole.splitlines())


@pytest.mark.parametrize("name", ["html", "junit", "table"])
def test_reports_for_people_say_that_details_were_not_saved(name, cases):
    text = formats.render(name, saved(cases["healthy"]), everything=True)
    assert "finding, saved without details" in text
    assert name == "junit" or "2 findings, saved without details" in text
    whole = formats.render(name, cases["healthy"], everything=True)
    assert "saved without details" not in whole


def test_a_large_run_is_counted_when_it_is_read(make, cases):
    hosts = PackedHosts(cases["mixed"].hosts)
    short = with_counts(replace(cases["mixed"], hosts=hosts))
    assert len(short.hosts) == len(hosts)
    assert short.hosts[0] == counted(hosts[0])
    assert short.hosts[1:3] == tuple(map(counted, hosts[1:3]))
    assert list(short.hosts) == [counted(host) for host in hosts]
    assert short.summaries == hosts.summaries


def test_counting_a_counted_report_again_does_not_change_it(cases):
    for host in map(counted, cases["mixed"].hosts):
        assert counted(host) == host


def test_the_verdict_file_counts_what_passed_unless_all_is_asked_for(cases):
    verdict = verdict_of(cases["healthy"])
    short, whole = (
        msgspec.json.decode(verdict.text(everything=everything))["run"]
        for everything in (False, True)
    )
    assert short["hosts"][0]["findings"] == []
    assert msgspec.convert(short["hosts"][0]["counted"][0], CountedFindings).count == 1
    assert len(whole["hosts"][0]["findings"]) == len(cases["healthy"].hosts[0].findings)


def test_a_host_with_eight_gpus_takes_less_than_15_kb(tmp_path):
    document = msgspec.json.encode(five_nights.document(five_nights.H100[0], 1))
    host = Host(name="gpu001", expect_hostname=False)
    context = open_context(tmp_path, ("nvidia-h100-sxm",))
    run = vet_saved(
        [host], [Visit("gpu001", Status.VETTED, "", document)], context, fail_on=Severity.WARNING
    )
    whole, short = (
        formats.render("json", run, everything=everything) for everything in (True, False)
    )
    assert len(whole) > 100_000
    assert len(short) < 15_000
