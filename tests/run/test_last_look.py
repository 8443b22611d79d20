"""What came since the last look: whose evidence it is, whether it can be compared, and what is said
if it cannot."""

import json
import os
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevet.base.errors import UserError
from nodevet.baseline import load
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import open_evidence
from nodevet.evidence.last_look import evidence_since
from nodevet.fleet import Visit
from nodevet.model import Host, Status, Verdict
from nodevet.vet.terminal.since import tell_not_compared, with_since
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.last_look import NOTHING, Ignored, LastLook
from nodevet.vet.use.saved import SavedEvidenceError, keep
from nodevet.vet.use.vet import reports

DAY = 86400.0
LOG = "the kernel log"
SAME = {"hostname": "n", "machine_id": "m", "boot_id": "b"}
OLD = {"kind": "oom", "detail": "python", "count": 1, "last_s": 500.0}
NEW = {"kind": "hung_task", "detail": "dd", "count": 1, "last_s": 90000.0}


def evidence(*events: Any, uptime: float = 2 * DAY, log: Any = None, **host: Any) -> bytes:
    whole = {"complete": True, "since_s": 0.0, "covered_s": uptime, "crashes": []}
    sections = {
        "host": {"status": "ok", "data": {**SAME, "uptime_s": uptime, "clock_s": 1e9, **host}},
        "kernel_log": {"status": "ok", "data": {**whole, "events": events, **(log or {})}},
    }
    return json.dumps({"schema": 1, "probe": "", "sections": sections}).encode()


BEFORE = evidence(OLD, uptime=DAY)
AFTER = evidence(OLD)


@pytest.fixture
def context(tmp_path: Path) -> VetContext:
    (tmp_path / "b.yaml").write_text("nodevet: 1\nexpect: {kernel_faults: {}}\n")
    catalog = Catalog()
    (found,) = load([str(tmp_path / "b.yaml")], folders=[], catalog=catalog)
    return VetContext(baselines=(found,), catalog=catalog, today=date(2026, 11, 20), chosen=found)


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    def write(document: bytes | None, name: str = "n", status: Status = Status.VETTED) -> Path:
        keep(Visit(name, status, "", document), Host(name=name), tmp_path / "evidence")
        return tmp_path / "evidence"

    return write


def judged(context: VetContext, look: LastLook, document: bytes, name: str = "n") -> list[str]:
    visits = [Visit(name, Status.VETTED, evidence=document)]
    found = reports(iter(visits), {name: Host(name=name)}, replace(context, since=look))
    return [
        finding.verdict.value
        for report in found
        for finding in report.findings
        if finding.check == "kernel_faults"
    ]


def test_only_log_lines_since_the_last_look_fail(
    context: VetContext, save: Callable[..., Path]
) -> None:
    look = LastLook([save(BEFORE)])
    assert judged(context, look, AFTER) == ["ok"] and look.ignored == {}
    assert judged(context, look, evidence(OLD, NEW)) == ["fail"]
    assert judged(context, look, evidence({**OLD, "count": 2, "last_s": 9e4})) == ["fail"]


@pytest.mark.parametrize(
    ("then", "now", "why"),
    [
        ({"machine_id": "other"}, {}, "it was another machine: the machine id differs"),
        ({"boot_id": "other"}, {}, "rebooted since"),
        ({"machine_id": None}, {}, "the machine id was not read then"),
        ({}, {"machine_id": None}, "the machine id was not read this time"),
        ({"boot_id": ""}, {}, "the boot id was not read then"),
        ({"uptime": 2 * DAY}, {}, "it is not older than the judged evidence"),
        ({"uptime": 3 * DAY}, {}, "it is not older than the judged evidence"),
        ({"uptime_s": None}, {}, "the uptime was not read"),
        ({"uptime_s": -5.0}, {}, "it is not older than the judged evidence"),
    ],
)
def test_earlier_evidence_of_another_boot_or_machine_is_ignored(
    then: Any, now: Any, why: str, context: VetContext, save: Callable[..., Path]
) -> None:
    look = LastLook([save(evidence(OLD, **{"uptime": DAY, **then}))])
    assert judged(context, look, evidence(OLD, **now)) == ["fail"]
    assert look.ignored == {Ignored(why): ("n",)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not an evidence document"),
        (b'{"host": "n", "status": "vetted", "evidence": {"schema": 1, "pro', "not an evidence"),
        (b'{"host": "n", "status": "vetted", "evidence": {"schema": 99, "probe": "", "sections":'
         b" {}}}", "evidence schema 99; this nodevet reads 1"),
        (b'{"host": "x", "status": "vetted", "evidence": {}}', "evidence of x"),
        (b'{"host": "n", "status": "unreachable", "evidence": null}', "no evidence was recorded: "),
        (b"\xff\xfe", "not an evidence document"),
    ],
)  # fmt: skip
def test_evidence_that_cannot_be_read_is_reported_and_counts_for_nothing(
    text: bytes, why: str, context: VetContext, save: Callable[..., Path]
) -> None:
    folder = save(BEFORE)
    (folder / "n.json").write_bytes(text)
    look = LastLook([folder])
    assert judged(context, look, AFTER) == ["fail"]
    ((told, hosts),) = look.ignored.items()
    assert why in told.why and not told.part and hosts == ("n",)


def test_a_path_that_is_not_an_evidence_file_is_reported_or_refused(
    context: VetContext, tmp_path: Path, save: Callable[..., Path]
) -> None:
    folder = save(BEFORE)
    (folder / "n.json").unlink()
    (folder / "n.json").symlink_to(folder)
    look = LastLook([folder])
    assert judged(context, look, AFTER) == ["fail"]
    assert list(look.ignored) == [Ignored(f"{folder}/n.json: cannot be read: not a regular file")]
    (tmp_path / "run").mkdir()
    (tmp_path / "run/journal.jsonl").write_text("")
    (tmp_path / "run/plan.json").write_text("{}")
    with pytest.raises(SavedEvidenceError):
        LastLook([tmp_path / "run"])


def test_a_log_that_no_longer_reaches_back_to_the_last_look_is_judged_in_full(
    context: VetContext, save: Callable[..., Path]
) -> None:
    look = LastLook([save(BEFORE)])
    begins = {"complete": False, "since_s": DAY + 10, "covered_s": DAY - 10}
    late = {**OLD, "last_s": 500.0}
    assert judged(context, look, evidence(late, log=begins)) == ["fail"]
    assert list(look.ignored) == [Ignored("it no longer reaches back to the last look", LOG)]
    gaps = {"complete": False, "since_s": 0.0, "covered_s": None}
    assert judged(context, look, evidence(late, log=gaps)) == ["fail", "unknown"]
    assert list(look.ignored) == [Ignored("it has gaps", LOG)]
    reaches = {"complete": False, "since_s": DAY - 100, "covered_s": DAY + 100}
    assert judged(context, look, evidence(late, log=reaches)) == ["ok"]


def test_a_log_that_the_last_look_could_not_read_is_judged_in_full(
    context: VetContext, save: Callable[..., Path]
) -> None:
    document = json.loads(BEFORE)
    document["sections"]["kernel_log"] = {"status": "denied", "why": "EPERM"}
    look = LastLook([save(json.dumps(document).encode())])
    assert judged(context, look, AFTER) == ["fail"]
    assert list(look.ignored) == [Ignored("it was not read then", LOG)]


def test_the_same_folder_is_read_before_it_is_written(
    context: VetContext, save: Callable[..., Path]
) -> None:
    folder = save(BEFORE)
    look = LastLook([folder])
    hosts = {"n": Host(name="n")}
    nights = [
        (AFTER, "ok"),
        (evidence(OLD, NEW, uptime=3 * DAY), "fail"),
        (evidence(OLD, NEW, uptime=4 * DAY), "ok"),
    ]
    for document, verdict in nights:
        found = reports(
            iter([Visit("n", Status.VETTED, evidence=document)]),
            hosts,
            replace(context, since=look),
            lambda visit, host: keep(visit, host, folder),
        )
        ((finding,),) = [report.findings for report in found]
        assert finding.verdict is Verdict(verdict)
        assert b"since" not in json.loads((folder / "n.json").read_bytes())["evidence"]


def test_earlier_evidence_of_a_host_is_read_only_when_its_visit_arrives(
    context: VetContext, save: Callable[..., Path]
) -> None:
    folder, names = save(BEFORE, "h0"), [f"h{at}" for at in range(4)]
    for name in names:
        save(BEFORE, name)
    look = LastLook([folder])
    read: list[str] = []
    original = look.read
    look.read = lambda host: read.append(host) or original(host)  # type: ignore[method-assign]

    def visits() -> Iterator[Visit]:
        for at, name in enumerate(names):
            assert len(read) == at
            yield Visit(name, Status.VETTED, evidence=AFTER)

    hosts = {name: Host(name=name) for name in names}
    assert len(list(reports(visits(), hosts, replace(context, since=look)))) == 4


def test_an_evidence_file_belongs_to_the_host_named_in_it(
    context: VetContext, tmp_path: Path, save: Callable[..., Path]
) -> None:
    (save(BEFORE) / "n.json").rename(tmp_path / "yesterday.json")
    look = LastLook([tmp_path / "yesterday.json"])
    assert judged(context, look, AFTER) == ["ok"]
    assert judged(context, look, AFTER, name="other") == ["fail"]
    assert look.ignored == {Ignored(NOTHING): ("other",)}


def test_hosts_without_earlier_evidence_are_reported_in_one_line(
    context: VetContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    look = LastLook([tmp_path / "first-night"])
    for at in range(12):
        assert judged(context, look, AFTER, name=f"gpu{at:03}") == ["fail"]
    tell_not_compared(replace(context, since=look), quiet=False)
    assert capsys.readouterr().err == (
        "nodevet: --since ignored: no earlier evidence (12 hosts, gpu[000-011])\n"
    )


def test_the_message_names_the_section_that_the_last_look_could_not_read(
    context: VetContext, save: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(BEFORE)
    document["sections"]["kernel_log"] = {"status": "denied", "why": "EPERM"}
    look = LastLook([save(json.dumps(document).encode())])
    assert judged(context, look, AFTER) == ["fail"]
    tell_not_compared(replace(context, since=look), quiet=False)
    assert capsys.readouterr().err == (
        "nodevet: --since ignored for the kernel log: it was not read then (1 host, n)\n"
    )


def test_sample_and_since_exclude_each_other(context: VetContext) -> None:
    with pytest.raises(UserError, match="--sample cannot be used with --since"):
        with_since(context, [Path()], 60.0)
    assert with_since(context, [], 60.0) is context


def test_since_replaces_the_sample_in_the_evidence() -> None:
    found = evidence_since(open_evidence(AFTER), open_evidence(BEFORE))
    assert not isinstance(found, str) and found.since and found.since.seconds == DAY


def test_a_file_that_is_not_evidence_is_reported_whatever_its_name(
    context: VetContext, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("call the vendor")
    look = LastLook([tmp_path / "notes.txt"])
    assert judged(context, look, AFTER) == ["fail"]
    ((told, part),) = look.ignored
    assert "notes.txt: not an evidence document" in told and not part
    os.mkfifo(tmp_path / "pipe")
    look = LastLook([tmp_path / "pipe"])
    assert judged(context, look, AFTER) == ["fail"]
    assert look.ignored == {Ignored(f"{tmp_path / 'pipe'}: not a regular file"): ("n",)}
