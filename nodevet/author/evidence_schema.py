"""The JSON Schema of evidence: a section per collector."""

from typing import Any

import msgspec

from nodevet.base.json_schema import REFERENCE, annotate, with_title
from nodevet.base.schema_kinds import Document
from nodevet.evidence import core
from nodevet.evidence.core import Section
from nodevet.evidence.sections import sections
from nodevet.vet.use.saved import KeptVisit


def evidence_schema() -> Document:
    """The output of `nodevet probe`, or the file of a host from `check --save`, which has it."""
    records = sections()
    kinds = [_section(record) for record in records.values()]
    references, definitions = msgspec.json.schema_components(
        (KeptVisit, *kinds), ref_template=REFERENCE
    )
    annotate(definitions, (KeptVisit, *records.values()))
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
                "properties": dict(zip(records, references[1:], strict=True)),
            },
            "earlier": {
                "type": "object",
                "description": "with a sample: the sections that hold counters as they were "
                "`before_s` seconds before",
                "properties": dict(zip(records, references[1:], strict=True)),
            },
        },
        "required": ["schema", "probe", "sections"],
    }
    choices = [{"$ref": "#/$defs/KeptVisit"}, {"$ref": "#/$defs/Evidence"}]
    return with_title("evidence", "What was read on a node", {"anyOf": choices}, definitions)


def _section(record: type[Any]) -> Any:
    kind: Any = Section
    return kind[record]
