"""JSON Schema (draft 2020-12) of a baseline file, for editors."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from nodevet.baseline.field_notes import field_notes
from nodevet.baseline.format import FilePart
from nodevet.catalog import Catalog
from nodevet.model import CheckParams

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Noted(GenerateJsonSchema):
    """With what stands below each field."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        for name, text in field_notes(schema["cls"]).items():
            found["properties"][name].setdefault("description", text)
        return found


def schema(catalog: Catalog) -> dict[str, Any]:
    """What an editor completes and checks. `lint` is stricter: a schema cannot follow `extends`."""
    whole = FilePart.model_json_schema()
    definitions = whole.pop("$defs", {})
    expect = {}
    for check in catalog.ids:
        params, inner = _params(catalog.check(check).params, f"{check}.")
        definitions.update(inner)
        definitions[check] = params
        title = catalog.title(check)
        expect[check] = {"$ref": f"#/$defs/{check}", "description": title}
    whole["properties"]["expect"] = _by_check(expect, FilePart.model_fields["expect"].description)
    ids = {"enum": list(catalog.ids)}
    definitions["WaiverPart"]["properties"]["check"] |= ids
    for part in whole["properties"]["severity"]["anyOf"]:
        if part.get("type") == "object":
            part["propertyNames"] = ids
    listed, chosen = whole["properties"]["fix"]["anyOf"]
    listed["items"] = ids
    chosen["propertyNames"] = ids
    _without_titles(whole)
    _without_titles(definitions)
    return {
        "$schema": DIALECT,
        **whole,
        "title": "nodevet baseline",
        "description": "What a kind of GPU node should be: docs/baselines.md",
        "$defs": dict(sorted(definitions.items())),
    }


def _by_check(expect: dict[str, Any], description: str | None) -> dict[str, Any]:
    return {
        "description": description,
        "type": ["object", "null"],
        "properties": expect,
        "additionalProperties": False,
    }


def _params(params: type[CheckParams], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of one check's params; its definitions, renamed with `prefix`.

    No field is required, for what is missing here may be inherited.
    """
    found = params.model_json_schema(
        ref_template=f"#/$defs/{prefix}{{model}}", schema_generator=_Noted
    )
    inner = {f"{prefix}{name}": value for name, value in found.pop("$defs", {}).items()}
    found.pop("required", None)
    choices = [_nullable_fields(found), {"type": "null", "description": "Do not ask for it"}]
    if params.bare is not None:
        choices.insert(0, _plain_only(found["properties"][params.bare]))
    return {"anyOf": choices}, inner


def _plain_only(field: dict[str, Any]) -> dict[str, Any]:
    """A mapping is never the plain value: it always names fields. Nor is null, which removes."""
    if "anyOf" not in field:
        return field
    choices = [choice for choice in field["anyOf"] if choice.get("type") not in ("object", "null")]
    kept = {key: value for key, value in field.items() if key != "default"}
    return choices[0] if len(choices) == 1 else {**kept, "anyOf": choices}


def _nullable_fields(found: dict[str, Any]) -> dict[str, Any]:
    """A null removes an inherited field."""
    nullable = {name: _nullable(field) for name, field in found["properties"].items()}
    others = found["additionalProperties"]  # params of free names says what each may be
    return {
        **found,
        "properties": nullable,
        "additionalProperties": _nullable(others) if isinstance(others, dict) else others,
    }


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    choices = field.get("anyOf", [field])
    if {"type": "null"} in choices:
        return field
    return {"anyOf": [*choices, {"type": "null"}]}


def _without_titles(node: Any) -> None:
    """Drop the titles that pydantic makes up from the names of fields."""
    if isinstance(node, list):
        for item in node:
            _without_titles(item)
    elif isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        for item in node.values():
            _without_titles(item)
