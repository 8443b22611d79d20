"""Saved evidence is judged as it was when it was taken."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import LATE
from nodevet.fleet import Visit
from nodevet.model import CheckParams, Host, Severity, Status, Verdict
from nodevet.model.baseline import Applies, Baseline, Expectation
from nodevet.vet.use import judge_visit
from nodevet.vet.use.context import VetContext, open_context
from nodevet.vet.use.saved import keep, replay
from nodevet.vet.use.vet import reports, vet_saved

EMPTY = json.dumps({"schema": 1, "probe": "", "sections": {}}).encode()


def context(*baselines: Baseline) -> VetContext:
    return VetContext(baselines=baselines, catalog=Catalog([]), today=date(2026, 11, 20))


def into(folder: Path) -> Callable[[Visit, Host], None]:
    return lambda visit, host: keep(visit, host, folder)


def test_the_groups_of_a_host_are_saved_so_that_it_gets_the_same_baseline(tmp_path: Path) -> None:
    everyone = Baseline(name="lax", path="lax", applies=Applies(hosts=frozenset({"a"})))
    rack = Applies(hosts=frozenset({"a"}), groups=frozenset({"rack1"}))
    judged = context(everyone, Baseline(name="strict", path="strict", applies=rack))
    host = Host(name="a", groups=frozenset({"rack1", "h100"}))
    visits = iter([Visit("a", Status.VETTED, evidence=EMPTY)])
    (live,) = reports(visits, {"a": host}, judged, into(tmp_path))
    ((visit, again),) = replay([tmp_path])
    (later,) = reports(iter([visit]), {"a": again}, judged)
    assert live.baseline == "strict"
    assert (later.baseline, later.groups) == ("strict", ("h100", "rack1"))


def test_a_run_that_is_ended_leaves_no_older_evidence_of_the_hosts_it_missed(
    tmp_path: Path,
) -> None:
    hosts = {name: Host(name=name) for name in ("a", "b")}
    visits = [Visit(name, Status.VETTED, evidence=EMPTY) for name in hosts]
    assert len(list(reports(iter(visits), hosts, context(), into(tmp_path)))) == 2
    running = reports(iter(visits), hosts, context(), into(tmp_path))
    next(running)
    running.close()
    statuses = {visit.host: visit.status for visit, _ in replay([tmp_path])}
    assert statuses == {"a": Status.VETTED, "b": Status.INTERRUPTED}


def test_a_file_of_probe_is_named_after_its_host(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(EMPTY)
    ((visit, host),) = replay([tmp_path])
    assert (visit.status, visit.evidence, host) == (
        Status.VETTED,
        EMPTY,
        Host(name="a", expect_hostname=False),
    )


def test_the_output_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"host": "a", "status": "splendid", "evidence": {}}')
    ((visit, _),) = replay([tmp_path])
    assert (visit.host, visit.status) == ("a", Status.UNREADABLE)
    assert "a.json: not the visit of a host: Invalid enum value 'splendid'" in visit.why


ENDLESS = """
from nodevet.model import Check, CheckParams, ok

def judge(evidence, params):
    while True:
        yield ok()

CHECK = Check(params=CheckParams, reads=(), judge=judge)
"""


def test_d1_a_host_that_takes_long_to_judge_does_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_visit, "JUDGING", 0.05)
    (tmp_path / "endless.py").write_text(ENDLESS)
    wish = Expectation(
        check="endless", params=CheckParams(), severity=Severity.CRITICAL, origin="b:1"
    )
    baselines = [
        Baseline(name="long", path="long", applies=Applies(hosts=frozenset({"a"}))),
        Baseline(name="short", path="short", applies=Applies(hosts=frozenset({"b"}))),
    ]
    baselines[0] = replace(baselines[0], expectations=(wish,))
    judged = replace(context(*baselines), catalog=Catalog([tmp_path]))
    hosts = {name: Host(name=name, expect_hostname=False) for name in ("a", "b")}
    visits = iter([Visit(name, Status.VETTED, evidence=EMPTY) for name in hosts])
    slow, fast = reports(visits, hosts, judged)
    assert slow.verdict is Verdict.UNKNOWN
    assert [each.why for each in slow.findings if each.verdict is Verdict.UNKNOWN] == [LATE]
    assert fast.baseline == "short"


GPU = {
    "index": 0, "bus_id": "0000:19:00.0", "pci_device": "10de:2330", "pci_subsystem": "10de:16c1",
}  # fmt: skip
H100 = json.dumps(
    {
        "schema": 1,
        "probe": "",
        "sections": {
            "gpu": {"status": "ok", "data": {"count": 1, "gpus": [GPU]}},
            "pci": {"status": "ok", "data": {"functions": []}},
        },
    }
).encode()


@pytest.mark.parametrize(
    ("applies", "evidence", "names", "baseline"),
    [
        ("gpu: {device: '10de:20b2'}", H100, (), "nvidia-h100-sxm"),
        ("hosts: b", H100, (), "nvidia-h100-sxm"),
        ("gpu: {device: '10de:20b2'}", EMPTY, (), ""),  # it may be one of these
        ("gpu: {device: '10de:2330', subsystem: '10de:1626'}", H100, (), "nvidia-h100-sxm"),
        ("gpu: {device: '10de:20b2'}", H100, ("site", "other"), ""),  # these were named
    ],
)
def test_a_shipped_baseline_stands_in_if_no_project_baseline_fits(
    tmp_path: Path, applies: str, evidence: bytes, names: tuple[str, ...], baseline: str
) -> None:
    """It is told, and it is unknown whether it is the right one: never ok."""
    (tmp_path / "baselines").mkdir()
    for name in ("site", "other"):
        text = f"nodevet: 1\napplies: {{{applies}}}\nexpect: {{gpu_count: 1}}\n"
        (tmp_path / f"baselines/{name}.yaml").write_text(text)
    judged = open_context(tmp_path, names)
    visits = [Visit("a", Status.VETTED, evidence=evidence)]
    run = vet_saved([Host(name="a")], visits, judged, fail_on=Severity.CRITICAL)
    (found,) = run.hosts
    none = next(finding for finding in found.findings if finding.check == "baseline")
    assert none.verdict is Verdict.UNKNOWN and found.verdict in (Verdict.UNKNOWN, Verdict.FAIL)
    assert found.baseline == baseline
    assert (f"judged by the shipped {baseline}" in none.why) == bool(baseline)
    assert set(run.baselines) == ({baseline} if baseline else set())
    others = {finding.check for finding in found.findings} - {"baseline", "hostname"}
    assert bool(others) == bool(baseline)


def test_a_project_without_baselines_is_judged_by_the_shipped_ones(tmp_path: Path) -> None:
    visits = [Visit("a", Status.VETTED, evidence=H100)]
    judged = open_context(tmp_path, ())
    (found,) = vet_saved([Host(name="a")], visits, judged, fail_on=Severity.CRITICAL).hosts
    assert found.baseline == "nvidia-h100-sxm"
    assert "baseline" not in {finding.check for finding in found.findings}
