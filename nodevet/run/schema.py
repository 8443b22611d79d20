"""JSON Schemas (draft 2020-12) of the documents that nodevet writes, from the types that it writes
them with. What stands beside a field in its class is the field's description."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from nodevet import model
from nodevet.base.project import Project
from nodevet.baseline.schema import DIALECT
from nodevet.diagnosis.model import SCHEMA as DIAGNOSIS_SCHEMA
from nodevet.diagnosis.model import Diagnosis
from nodevet.evidence import core
from nodevet.evidence.core import Section
from nodevet.evidence.sections import sections
from nodevet.feed.answer import FEED_SCHEMA, FeedAnswer
from nodevet.feed.workload import WorkloadFile
from nodevet.fixing.result import SCHEMA, Result
from nodevet.history.backtest import Backtest
from nodevet.history.blame import Blame
from nodevet.history.passport import Passport
from nodevet.history.run_diff import RunDiff
from nodevet.history.story import HostStory
from nodevet.history.trend import CheckTrend, FieldTrend
from nodevet.remedy.model import VERSION, Plan
from nodevet.run.recall import RunFound, RunsFound
from nodevet.run.saved import KeptVisit
from nodevet.run.status import STATUS_SCHEMA, StatusAnswer

Document = dict[str, Any]
_NOTED = re.compile(r"^    (\w+): [^#\n]*#(.*)$", re.MULTILINE)
REFERENCE = "#/$defs/{name}"


def baseline(project: Project | Path) -> Document:
    """A baseline of this project: what an editor completes and checks."""
    from nodevet.baseline.schema import schema
    from nodevet.run.context import open_project

    catalog, _ = open_project(project)
    return schema(catalog)


def workload(project: Project | Path) -> Document:
    """A job whose GPUs are to be fed: what an editor completes and checks."""
    from nodevet.baseline.schema import struct_definitions

    found = struct_definitions(WorkloadFile, "")
    about = "A job whose GPUs are to be fed: docs/feed.md"
    return _titled("workload", about, {"$ref": "#/$defs/WorkloadFile"}, found)


def evidence(project: Project | Path) -> Document:
    """What `nodevet probe` prints, or what `check --save` keeps of a host, which holds that."""
    records = sections()
    kinds = [_section(record) for record in records.values()]
    told, definitions = msgspec.json.schema_components((KeptVisit, *kinds), ref_template=REFERENCE)
    _annotate(definitions, (KeptVisit, *records.values()))
    definitions["KeptVisit"]["properties"]["evidence"] = {
        "anyOf": [{"$ref": "#/$defs/Evidence"}, {"type": "null"}],
        "description": "null of a host that was not vetted",
    }
    definitions["Evidence"] = {
        "type": "object",
        "description": "What one probe read on one node, a section per collector.",
        "properties": {
            "schema": {"const": core.SCHEMA},
            "probe": {"type": "string", "description": "version of nodevet"},
            "sections": {
                "type": "object",
                "properties": dict(zip(records, told[1:], strict=True)),
            },
            "earlier": {
                "type": "object",
                "description": "with a sample: the sections that hold counters as they were "
                "`before_s` seconds before",
                "properties": dict(zip(records, told[1:], strict=True)),
            },
        },
        "required": ["schema", "probe", "sections"],
    }
    choices = [{"$ref": "#/$defs/KeptVisit"}, {"$ref": "#/$defs/Evidence"}]
    return _titled("evidence", "What was read on a node", {"anyOf": choices}, definitions)


def history(project: Project | Path) -> Document:
    """What the commands of the history answer with --format json; `kind` says which."""
    told, definitions = msgspec.json.schema_components(tuple(HISTORY), ref_template=REFERENCE)
    _annotate(definitions, tuple(HISTORY))
    for struct, kinds in HISTORY.items():
        found = definitions[struct.__name__]
        found["properties"] = {"kind": {"enum": list(kinds)}, **found["properties"]}
        found["required"] = ["kind", *found.get("required", ())]
    about = "What is remembered, as the commands of the history answer it with --format json"
    return _titled("history", about, {"anyOf": list(told)}, definitions)


def _section(record: type[Any]) -> Any:
    kind: Any = Section
    return kind[record]


def _of_struct(
    name: str,
    about: str,
    kind: type[msgspec.Struct],
    field: str,
    version: int,
    project: Project | Path,
) -> Document:
    """The schema of a document of one class, whose `field` holds its `version`."""
    (told,), definitions = msgspec.json.schema_components((kind,), ref_template=REFERENCE)
    _annotate(definitions, (kind,))
    definitions[kind.__name__]["properties"][field] = {"const": version}
    return _titled(name, about, told, definitions)


def _titled(name: str, about: str, told: Document, definitions: Document) -> Document:
    return {
        "$schema": DIALECT,
        "title": f"nodevet {name}",
        "description": about,
        **told,
        "$defs": dict(sorted(definitions.items())),
    }


def _annotate(definitions: Document, kinds: tuple[type[Any], ...]) -> None:
    """Give definitions what their classes say of themselves and of their fields; take what a
    record is if nothing of it is said, which is long and says nothing."""
    for found in definitions.values():
        for field in found.get("properties", {}).values():
            if isinstance(field.get("default"), dict):
                del field["default"]
    for each in _structs(kinds):
        found = definitions.get(each.__name__)
        if found is None:
            continue
        found["description"] = inspect.cleandoc(each.__doc__ or "")
        for name, note in _notes(each).items():
            if name in found.get("properties", {}):
                found["properties"][name].setdefault("description", note)


def _structs(kinds: tuple[Any, ...]) -> Iterator[type[msgspec.Struct]]:
    """The structs among these types, and in their fields, each once."""
    left, seen = list(kinds), set()
    while left:
        kind = left.pop()
        left += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
            seen.add(kind)
            left += get_type_hints(kind).values()
            yield kind


def _notes(kind: type) -> Mapping[str, str]:
    """The comment behind each field of a class, its bases' too."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each is not msgspec.Struct and issubclass(each, msgspec.Struct):
            found.update(_NOTED.findall(inspect.getsource(each)))
    return {name: note.strip() for name, note in found.items()}


HISTORY: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    RunsFound: ("runs",),
    RunFound: ("run",),
    HostStory: ("history",),
    Passport: ("passport", "history"),
    RunDiff: ("diff",),
    CheckTrend: ("trend",),
    FieldTrend: ("trend",),
    Blame: ("blame",),
    Backtest: ("backtest",),
}
"""The documents of the history, each with what its `kind` says."""
KINDS: Mapping[str, Callable[[Project | Path], Document]] = {
    "baseline": baseline,
    "workload": workload,
    "run": partial(
        _of_struct, "run", "A run of checks, as --format json writes it",
        model.Run, "schema", model.RUN_SCHEMA,
    ),
    "plan": partial(
        _of_struct, "plan", "What fixes would change, as `nodevet plan -o` writes it",
        Plan, "nodevet_plan", VERSION,
    ),
    "result": partial(
        _of_struct, "result", "How a run of fixes ended: result.json of its folder",
        Result, "schema", SCHEMA,
    ),
    "status": partial(
        _of_struct, "status", "How a run of fixes stands: `nodevet status --format json`",
        StatusAnswer, "schema", STATUS_SCHEMA,
    ),
    "evidence": evidence,
    "feed": partial(
        _of_struct, "feed", "Whether nodes can feed their GPUs, as `nodevet feed` answers it",
        FeedAnswer, "schema", FEED_SCHEMA,
    ),
    "diagnosis": partial(
        _of_struct, "diagnosis", "What GPUs wait for, as `nodevet diagnose` answers it",
        Diagnosis, "schema", DIAGNOSIS_SCHEMA,
    ),
    "history": history,
}  # fmt: skip
"""Each takes the project's folder."""
