"""What a file is, told from its content: real documents of every kind."""

import json
from pathlib import Path

import pytest

from nodevet.document.kinds import DocumentKind, kind_of, recognize, usage, wrong_kind_text
from nodevet.fix import formats as fix_formats
from nodevet.fix import model
from nodevet.fix.plan import plan_file
from nodevet.fixing.result import Result
from nodevet.model.run import Run
from nodevet.vet.formats import render

ROOT = Path(__file__).parent.parent
RUN = Run(id="20261122T040012.345Z-1f3a9c2e", nodevet="0", started="2026-11-22", seconds=1.0)
PLAN = model.Plan(
    id="7f3a91c2", author="bob", created="", expires="", baselines={}, nodes={}, steps=()
)
RESULT = Result(nodevet="0", plan="7f3a91c2", digest="", author="bob", started="", seconds=1.0)


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_runs_and_results_are_distinguished(form: str) -> None:
    assert recognize(render(form, RUN).encode()) is DocumentKind.RUN
    assert recognize(fix_formats.render(form, RESULT).encode()) is DocumentKind.RESULT


def test_a_plan() -> None:
    assert recognize(plan_file.write(PLAN)) is DocumentKind.PLAN


def test_the_order_of_keys_does_not_matter() -> None:
    document = json.loads(plan_file.write(PLAN))
    assert recognize(json.dumps(document, sort_keys=True).encode()) is DocumentKind.PLAN


@pytest.mark.parametrize("path", sorted((ROOT / "baselines").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_baselines(path: Path) -> None:
    assert kind_of(path) is DocumentKind.BASELINE


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("nodevet: 1\nexpect: {swap: 0}\n", DocumentKind.BASELINE),
        ("expect:\n  swap: 0\n", DocumentKind.BASELINE),  # lint says that the version is missing
        ("nodevet: 1\nexpect: {a: [}\n", DocumentKind.BASELINE),  # it does not parse
        ("nodevet: 1\nextends: generic\n", DocumentKind.BASELINE),
        ("# fleet\r\nnodevet: 1\r\nhosts: gpu[1-4]\r\n", DocumentKind.INVENTORY),
        ('"nodevet": 1\n"groups": {}\n', DocumentKind.INVENTORY),
        ("nodevet: 1\napprovals: {live: 2}\n", DocumentKind.APPROVAL),
        ("nodevet: 1\nworkload: ResNet-50\n", DocumentKind.WORKLOAD),
        ("workload: ResNet-50\nstep: {}\n", DocumentKind.WORKLOAD),
        ("workload: web\nreplicas: 3\n", None),
        ("sim: 1\nnodes:\n  gpu001: {}\n", DocumentKind.SCENARIO),
        ('{"schema": 1, "probe": "0.1", "sections": {}}', DocumentKind.EVIDENCE),
        ('{"host": "a", "status": "vetted", "evidence": null}', DocumentKind.EVIDENCE),
        ('{"_meta": {"hostvars": {}}}', DocumentKind.INVENTORY),
        ("version: 2\nservices:\n  expect: 1\n", None),
        ("hosts:\n  - a\n", None),
        ("on: push\njobs: {}\n", None),
        ("{", None),
        ("", None),
        ("\x00\xff", None),
        ("[" * 100_000, None),
        ('{"a":' * 100_000, None),
    ],
)
def test_texts(text: str, kind: DocumentKind | None) -> None:
    assert recognize(text.encode("utf-8", "surrogateescape")) is kind


def test_simulated_fleets() -> None:
    assert kind_of(ROOT / "sim/nodevet_sim/scenarios/demo.yaml") is DocumentKind.SCENARIO


def test_folders(tmp_path: Path) -> None:
    evidence, run = tmp_path / "evidence", tmp_path / "runs/7f3a91c2-1"
    evidence.mkdir()
    run.mkdir(parents=True)
    assert kind_of(evidence) is None
    (evidence / "gpu001.json").write_text('{"schema": 1, "probe": "0.1", "sections": {}}')
    assert kind_of(evidence) is DocumentKind.EVIDENCE
    (run / "plan.json").write_bytes(plan_file.write(PLAN))
    assert kind_of(run) is None  # a project may keep its plan so
    (run / "journal.jsonl").touch()
    assert kind_of(run) is DocumentKind.FIX_RUN
    assert wrong_kind_text(run, DocumentKind.RUN, DocumentKind.FIX_RUN) == ""
    assert wrong_kind_text(run, DocumentKind.EVIDENCE) == (
        f"this is the folder of a run of fixes; render it with: nodevet report {run}"
    )


def test_missing_and_unknown_values_are_not_confused(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("hello")
    assert wrong_kind_text(tmp_path / "gone.json", DocumentKind.RUN) == ""
    assert wrong_kind_text(other, DocumentKind.RUN) == ""
    assert wrong_kind_text(tmp_path, DocumentKind.EVIDENCE) == ""


def test_every_kind_of_document_has_a_usage_hint() -> None:
    for kind in DocumentKind:
        assert "site" in usage(kind, Path("site/file"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_e20_a_baseline_in_utf_16_is_known_and_so_not_skipped(encoding: str) -> None:
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    data = mark + "nodevet: 1\nexpect: {}\n".encode(encoding)
    assert recognize(data) is DocumentKind.BASELINE
