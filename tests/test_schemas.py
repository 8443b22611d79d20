"""The schemas of what nodevet writes, tried on real documents of each kind."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec import Struct, to_builtins

from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds as schema_kinds
from nodevet.bmc.sheet import bmc_sheet
from nodevet.bmc.use import BmcAnswer
from nodevet.checking.catalog import Catalog
from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.core import Section
from nodevet.evidence.document import open_evidence
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan import plan_file
from nodevet.fixing.model import Risk
from nodevet.fleet import Visit
from nodevet.learn.compare import as_document, compare
from nodevet.learn.sheet import comparison_sheet
from nodevet.model import Host, Status
from nodevet.passes.answer import PassAnswer
from nodevet.passes.document import FIELDS, text_of
from nodevet.passes.sheet import pass_fields, pass_sheet
from nodevet.resource import Resource, RunCommand, State
from nodevet.slurm.answer import answer
from nodevet.slurm.decide import NodePlan
from nodevet.slurm.sheet import nodes_sheet
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
def test_the_schema_refuses_an_invalid_run(
    schemas: dict[str, Document], changes: Document, path: str
) -> None:
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


def printed(document: Document | Struct, kind: str) -> Document:
    """As a program reads it after nodevet.cli.sheets wrote it."""
    read: Document = json.loads(json.dumps({"kind": kind, **to_builtins(document)}))
    return read


def test_what_bmcs_report(schemas: dict[str, Document]) -> None:
    read = {"schema": 1, "probe": "", "sections": {"bmc": {"status": "ok", "data": {}}}}
    section = open_evidence(json.dumps(read).encode())[BmcInfo]
    assert section.data is not None
    without = Section[BmcInfo](status="absent", why="the inventory names no BMC for it")
    hosts = {"gpu1": section, "gpu2": without}
    document = printed(BmcAnswer(hosts=hosts), bmc_sheet(hosts).kind)
    assert faults(schemas["bmc"], document) == []
    document["hosts"]["gpu2"]["status"] = 7
    assert faults(schemas["bmc"], document)


def test_a_comparison(schemas: dict[str, Document]) -> None:
    comparison = compare({}, Catalog(), {"gpu1": "unreachable"})
    document = printed(as_document(comparison), comparison_sheet(comparison).kind)
    assert faults(schemas["comparison"], document) == []
    del document["outliers"]
    assert faults(schemas["comparison"], document)


def test_a_pass_shows_its_contents(schemas: dict[str, Document]) -> None:
    numbers = {"uptime": "60", "vetted": "1795000000", "expires": "1795003600"}
    values = {name: [numbers.get(name, f"a {name}")] for name in FIELDS}
    signed = text_of(values) + b"-----BEGIN SSH SIGNATURE-----\n"
    said = msgspec.convert({**pass_fields(signed), "valid": False, "why": "expired"}, PassAnswer)
    document = printed(said, pass_sheet(pass_fields(signed), "expired", is_valid=False).kind)
    assert document["gpus"] == ["a gpu"] and document["uptime"] == 60
    assert faults(schemas["pass"], document) == []
    del document["machine"]
    assert faults(schemas["pass"], document)


def test_the_answer_of_drain_fits_its_schema(schemas: dict[str, Document]) -> None:
    plans = [NodePlan("gpu1", "nodevet: xid"), NodePlan("gpu2", "nodevet: xid", "refused", True)]
    kind = nodes_sheet(plans, "drained", "r1", dry=False).kind
    document = printed(answer(plans, "drained", "r1", dry=False), kind)
    assert [node["why_not"] for node in document["nodes"]] == ["", "refused"]
    assert faults(schemas["slurm"], document) == []
    document["nodes"][0]["is_short"] = "no"
    assert faults(schemas["slurm"], document)


def test_the_command_knows_the_kinds(schemas: dict[str, Document]) -> None:
    for kind, schema in schemas.items():
        done = subprocess.run(
            [sys.executable, "-m", "nodevet", "schema", kind], capture_output=True, check=True
        )
        assert json.loads(done.stdout) == json.loads(json.dumps(schema))
