"""`check --from-run`: what was read, judged by other baselines, as if it were judged then."""

import json
import multiprocessing
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import five_nights
import msgspec
import pytest
import recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevet.base.last_few import FEW, LastFew
from nodevet.base.processes import KilledProcess
from nodevet.evidence.document import open_evidence
from nodevet.fleet import Visit
from nodevet.model import Host, HostReport, Severity, Status, Verdict
from nodevet.model.run import Run
from nodevet.store import open_store
from nodevet.vet.packed import Packer
from nodevet.vet.use.asks import sections_of
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.from_run import (
    BATCH,
    RecordedLook,
    Rejudge,
    recorded_hosts,
    rejudge,
    visit_of,
)
from nodevet.vet.use.judge_visit import judge_visit
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.targets import Targets
from nodevet.vet.use.vet import collect

Past = Callable[..., subprocess.CompletedProcess[str]]


def refuse(killed: KilledProcess, hosts: object) -> None:
    raise AssertionError((killed, hosts))


def again(
    url: str,
    ref: str,
    context: VetContext,
    *,
    processes: int = 1,
    targets: Targets | None = None,
    listener: VetListener | None = None,
) -> Run:
    with open_store(url) as store:
        asked = recorded_hosts(store, ref, targets if targets is not None else Targets())
    how = Rejudge(store=url, context=context, processes=processes)
    return rejudge(asked, how, fail_on=Severity.WARNING, killed=refuse, listener=listener)


@pytest.mark.parametrize("night", five_nights.NIGHTS)
def test_the_same_baselines_give_the_same_verdicts_for_a_night(url: str, night: int) -> None:
    then = {report.host: report for report, _ in five_nights.judged_reports(night)}
    found = again(url, five_nights.run_id(night), five_nights.context(night))
    assert {one.host: said(one) for one in found.hosts} == {
        host: said(report) for host, report in then.items()
    }
    assert found.replayed


def said(report: HostReport) -> tuple[object, ...]:
    return (report.status, report.why, report.findings, report.facts, report.groups)


def test_a_node_of_another_domain_is_not_taken_for_the_intended_one(tmp_path: Path) -> None:
    document = five_nights.document("gpu002", 1)
    document["sections"]["host"]["data"]["hostname"] = "gpu002.dc2.example.com"
    evidence, context = msgspec.json.encode(document), five_nights.context(1)
    visit = Visit("gpu002", Status.VETTED, "", evidence, 0.1, time.time())
    host = Host(name="gpu002", expect_hostname="gpu002.dc1.example.com")
    then = judge_visit(visit, host, context).report
    with open_store(url := f"sqlite:///{tmp_path}/s.sqlite") as store:
        begun = recorded.run(0, 1)
        recorder = store.begin(begun)
        recorder.take(then, evidence)
        recorder.finish(recorded.ended(begun))
    (report,) = again(url, "last", context).hosts
    assert report.findings[0] == then.findings[0]
    assert (report.findings[0].check, report.verdict) == ("hostname", Verdict.FAIL)


def test_it_does_not_matter_how_many_processes_judge(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodevet.vet.use.from_run.BATCH", 4)
    assert BATCH > 4
    alone, spread = (again(url, "last", five_nights.context(5), processes=many) for many in (1, 3))
    assert tuple(spread.hosts) == tuple(alone.hosts)
    assert (spread.exit_code, spread.baselines) == (alone.exit_code, alone.baselines)


def test_packed_reports_give_the_same_run_and_report_one_machine_under_three_names() -> None:
    """Of a machine that answers to several names, each name says so, packed or not."""
    reports = [report for report, _ in five_nights.judged_reports(5)]
    one = next(report for report in reports if report.boot_id)
    twins = [replace(one, host=f"twin{number}") for number in range(2)]
    every = [twins[0], *reports, twins[1]]
    hosts = [Host(name=report.host) for report in every]
    packer, context = Packer(), five_nights.context(5)
    plain, packed = (
        collect(hosts, some, context, fail_on=Severity.WARNING)
        for some in ((each for each in every), (packer.pack(each) for each in every))
    )
    assert tuple(packed.hosts) == tuple(plain.hosts)
    assert packed.summaries == plain.summaries
    told = {
        each.host
        for each in packed.hosts
        if each.findings[:1] and each.findings[0].check == "host_identity"
    }
    assert told == {one.host, "twin0", "twin1"}


SECTIONS = ("gpu", "pci", "infiniband", "modules", "kernel_log", "nvme", "host")
MIXES = st.lists(
    st.tuples(
        st.sampled_from(five_nights.H100),
        st.dictionaries(st.sampled_from(SECTIONS), st.sampled_from(five_nights.HOSTS), max_size=3),
        st.sampled_from(("", *SECTIONS)),
    ),
    min_size=2,
    max_size=2 * FEW + 2,
)


@given(MIXES)
@settings(max_examples=15, deadline=None)
def test_sharing_equal_sections_between_hosts_changes_no_report(
    mixes: list[tuple[str, dict[str, str], str]],
) -> None:
    """Hosts with sections of others, one of them without one, judged in a row and by themselves."""
    context, alike = five_nights.context(5), LastFew()
    encode = msgspec.msgpack.Encoder().encode
    for name, others, without in mixes:
        document = five_nights.document(name, 5)
        for section, other in others.items():
            document["sections"][section] = five_nights.document(other, 5)["sections"][section]
        document["sections"].pop(without, None)
        for section in document["sections"].values():
            section["seconds"] = 0.0
        visit = Visit(name, Status.VETTED, "", json.dumps(document).encode(), 1.0, None)
        reopen = partial(open_evidence, visit.evidence, alike=alike)
        in_a_row = judge_visit(visit, Host(name=name), context, reopen=reopen).report
        alone = judge_visit(visit, Host(name=name), context).report
        assert encode(in_a_row) == encode(alone)


def test_text_that_no_encoding_can_hold_reaches_a_report(
    nodevet: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "own.py").write_text(
        '"""Says half a letter."""\nfrom nodevet.model import Check, CheckParams, fail\n'
        'def judge(evidence, params):\n    yield fail(why="half \\ud83d of one")\n'
        "CHECK = Check(params=CheckParams, reads=(), judge=judge)\n"
    )
    (tmp_path / "one.yaml").write_text("nodevet: 1\nexpect: {own: {}}\n")
    monkeypatch.setattr("nodevet.vet.use.from_run.BATCH", 4)
    found = again(url, "last", open_context(tmp_path, [str(tmp_path / "one.yaml")]), processes=2)
    assert {one.findings[0].why for one in found.hosts} == {"half \ud83d of one"}


def test_an_interrupt_ends_the_run_with_the_hosts_judged_so_far(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(VetListener):
        def advanced(self, host: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("nodevet.vet.use.from_run.BATCH", 2)
    run = again(url, "last", five_nights.context(5), processes=2, listener=Impatient())
    assert run.interrupted
    assert len(run.hosts) == len(five_nights.HOSTS)
    assert sum(one.status is Status.INTERRUPTED for one in run.hosts) == len(run.hosts) - 1
    assert not multiprocessing.active_children()


def test_only_what_the_checks_read_is_fetched(tmp_path: Path, url: str) -> None:
    (tmp_path / "one.yaml").write_text(
        "nodevet: 1\nexpect: {packages: {installed: {tuned: any}}}\n"
    )
    context = open_context(tmp_path, [str(tmp_path / "one.yaml")])
    sections = sections_of(context)
    assert sections is not None
    assert "installed" in sections
    assert "nvme" not in sections
    with open_store(url) as store:
        (found,) = store.evidence("last", hosts=["gpu001"], sections=sections)
    assert set(json.loads(found[1] or b"")["sections"]) == sections
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "own.py").write_text(
        '"""Says ok."""\nfrom nodevet.model import Check, CheckParams, ok\n'
        "def judge(evidence, params):\n    yield ok()\n"
        "CHECK = Check(params=CheckParams, reads=(), judge=judge)\n"
    )
    (tmp_path / "one.yaml").write_text("nodevet: 1\nexpect: {own: {}}\n")
    assert sections_of(open_context(tmp_path, [str(tmp_path / "one.yaml")])) is None


def test_a_pruned_verdict_is_not_ok(url: str) -> None:
    with open_store(url) as store:
        (visit,) = store.visits("last", ["gpu001"])
    for thinned, why in ((True, "was pruned"), (False, "was not recorded")):
        met = visit_of(replace(visit, thinned=thinned), has_evidence=False)
        assert met.status is Status.PROBE_FAILED
        assert why in met.why


def test_counters_are_judged_by_their_increase_since_the_previous_run(url: str) -> None:
    context = five_nights.context(5)
    now = {one.host: one for one in again(url, "last", context).hosts}
    look = RecordedLook(None, "last")
    since = again(url, "last", replace(context, since=look))
    differ = {one.host for one in since.hosts if one.findings != now[one.host].findings}
    assert "gpu001" in differ
    assert [(reason.why, hosts) for reason, hosts in look.ignored.items()] == [
        ("rebooted since", ("gpu007",))
    ]


def test_targets_and_limit_select_hosts_of_the_recorded_run(url: str) -> None:
    named = again(
        url, "2026-11-17", five_nights.context(2), targets=Targets(names=("gpu[003-004],new1",))
    )
    assert [(one.host, one.outcome.value, one.why) for one in named.hosts] == [
        ("gpu003", "fail", ""),
        ("gpu004", "ok", ""),
        ("new1", "probe_failed", "it is not in the recorded run"),
    ]
    limited = again(url, "2026-11-17", five_nights.context(2), targets=Targets(limit=("a100-04",)))
    assert [(one.host, one.status) for one in limited.hosts] == [("a100-04", Status.UNREACHABLE)]


def test_check_from_run_judges_a_recorded_run_by_another_baseline(
    nodevet: Past, tighter: Path
) -> None:
    done = nodevet(
        "check", "--from-run", "last", "-b", tighter, "--max-age", "none", "gpu[001-012]"
    )
    assert done.returncode == 1
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("FAIL  packages")]
    assert "gpu[004-009]" in row
    assert done.stderr == ""
    old = nodevet("check", "--from-run", "last", "-b", tighter, "--max-age", "1h", "gpu001")
    assert old.returncode == 3
    assert "evidence_age" in old.stdout


def test_values_that_the_recorded_run_did_not_read_are_reported(
    nodevet: Past, tmp_path: Path
) -> None:
    asks = tmp_path / "asks.yaml"
    asks.write_text("nodevet: 1\nexpect: {sysctl: {vm.swappiness: 10}}\n")
    done = nodevet("check", "--from-run", "last", "-b", asks, "--max-age", "none", "gpu001")
    assert done.returncode == 3
    assert "--from-run: the evidence of 1 host was read before these baselines named" in done.stderr
    assert "sysctl vm.swappiness: visit them again with the same -b" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from-run", "yesterday"), "no run 'yesterday'; name a run by its id, `last`"),
        (("--from-run", "last", "--store", "none"), "there is no history to read"),
        (("--from-run", "last", "--store", "sqlite:////nowhere/x"), "no run has been recorded in"),
        (("--from-run", "last", "--evidence", "."), "give only one of them"),
        (("--from-run", "last", "--save", "x"), "--save cannot be used with --from-run"),
        (
            ("--from-run", "last", "--since", "x"),
            "--from-run with --since takes only the word `store`",
        ),
    ],
)
def test_invalid_combinations_of_options_are_refused(
    nodevet: Past, words: tuple[str, ...], told: str
) -> None:
    done = nodevet("check", *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_every_format_shows_the_replayed_run(nodevet: Past, tmp_path: Path) -> None:
    names = ("json", "jsonl", "html", "junit", "prometheus", "markdown", "diff")
    formats = [f"--format={name}:{tmp_path / name}" for name in names]
    done = nodevet("check", "--from-run", "last", "--max-age", "none", *formats)
    assert done.returncode == 1
    for name in names:
        assert "gpu009" in (tmp_path / name).read_text()
    document = json.loads((tmp_path / "json").read_text())
    assert document["replayed"]
    verdicts = {found["verdict"] for host in document["hosts"] for found in host["findings"]}
    assert Verdict.FAIL.value in verdicts
