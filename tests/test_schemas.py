"""The schemas of what nodevet writes, tried on real documents of each kind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nodevet.base.project import Project
from nodevet.document.schema_kinds import kinds as schema_kinds
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan import plan_file
from nodevet.fixing.model import Risk
from nodevet.fleet import Visit
from nodevet.model import Host, Status
from nodevet.resource import Resource, RunCommand, State
from nodevet.vet.use.saved import keep

GOLDEN = Path(__file__).parent / "report" / "golden"
RUNS = sorted(path for path in GOLDEN.glob("*.json") if not path.name.endswith(".html.json"))

Document = dict[str, Any]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Document]:
    made = {name: kind.schema(Project()) for name, kind in schema_kinds().items()}
    for schema in made.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    return made


def faults(schema: Document, document: Document) -> list[str]:
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [error.json_path for error in found]


def test_the_golden_reports_are_runs_and_results(schemas: dict[str, Document]) -> None:
    kinds = set()
    for path in RUNS:
        document = json.loads(path.read_text())
        kind = "result" if "plan" in document else "run"
        kinds.add(kind)
        assert faults(schemas[kind], document) == [], path
    assert kinds == {"run", "result"}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"schema": 2}, "$.schema"),
        ({"hosts": {}}, "$.hosts"),
        ({"fail_on": "much"}, "$.fail_on"),
        ({"started": None}, "$.started"),
    ],
)
def test_what_is_no_run(schemas: dict[str, Document], changes: Document, path: str) -> None:
    document = json.loads((GOLDEN / "one.json").read_text())
    assert faults(schemas["run"], {**document, **changes}) == [path]
    del document["id"]
    assert faults(schemas["run"], document) == ["$"]


def test_findings_are_described(schemas: dict[str, Document]) -> None:
    finding = schemas["run"]["$defs"]["Finding"]
    assert finding["properties"]["origin"]["description"] == "file:line of the params"
    assert "One verdict on one subject" in finding["description"]
    wrong = json.loads((GOLDEN / "one.json").read_text())
    wrong["hosts"][0]["findings"][0]["verdict"] = "wrong"
    assert faults(schemas["run"], wrong) == ["$.hosts[0].findings[0].verdict"]


def test_a_plan(schemas: dict[str, Document]) -> None:
    unit = Resource(kind="unit", name="x.service")
    step = Step(
        id="gpu1/swap/1", host="gpu1", fix="swap", subjects=("GPU 1",), expected=None,
        actual={"a": [1, "b"]}, risk=Risk.DRAIN, actions=(RunCommand(words=("swapoff", "-a")),),
        resources=(unit,), reason="r",
        before=(State(resource=unit, exists=True, value={"enabled": "x"}),),
    )  # fmt: skip
    plan = Plan(
        id="7f3a91c2", author="bob", created="c", expires="e", baselines={"b": "0"},
        nodes={"gpu1": PlannedNode(machine_id="m", boot_id="b", baseline="b")}, steps=(step,),
    )  # fmt: skip
    document = json.loads(plan_file.write(plan))
    assert faults(schemas["plan"], document) == []
    document["steps"][0]["risk"] = "none"
    assert faults(schemas["plan"], document) == ["$.steps[0].risk"]


def test_evidence_as_the_probe_prints_it_and_as_it_is_saved(
    schemas: dict[str, Document], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodevet", "probe"], capture_output=True, check=True, cwd=tmp_path
    )
    document = json.loads(done.stdout)
    assert faults(schemas["evidence"], document) == []
    kept = Host(name="gpu1", groups=frozenset({"a"}))
    keep(Visit("gpu1", Status.VETTED, evidence=done.stdout, at=1.0), kept, tmp_path)
    keep(Visit("gpu2", Status.UNREACHABLE, "no route"), Host(name="gpu2"), tmp_path)
    for name in ("gpu1", "gpu2"):
        saved = json.loads((tmp_path / f"{name}.json").read_text())
        assert faults(schemas["evidence"], saved) == []
    document["sections"]["host"]["data"]["hostname"] = 7
    assert faults(schemas["evidence"], document) == ["$"]


def test_a_section_is_described_by_its_record(schemas: dict[str, Document]) -> None:
    wrong = {
        "schema": 1,
        "probe": "",
        "sections": {"gpu": {"status": "ok", "data": {"count": "x"}}},
    }
    assert faults(schemas["evidence"], wrong)
    wrong["sections"] = {"gpu": {"status": "ok", "data": {"count": 8}}}
    assert faults(schemas["evidence"], wrong) == []


def test_the_command_knows_the_kinds(schemas: dict[str, Document]) -> None:
    for kind, schema in schemas.items():
        done = subprocess.run(
            [sys.executable, "-m", "nodevet", "schema", kind], capture_output=True, check=True
        )
        assert json.loads(done.stdout) == json.loads(json.dumps(schema))
