"""JSON Schema (draft 2020-12) of a baseline file, for editors."""

from inspect import cleandoc
from typing import Any

import msgspec
from msgspec.json import schema_components

from nodevet.baseline.field_notes import field_notes
from nodevet.baseline.format import FilePart
from nodevet.checking.catalog import Catalog
from nodevet.document.json_schema import DIALECT, structs
from nodevet.model import CheckParams

EITHER = [{"required": ["accepts"]}, {"required": ["any"]}]  # of a waiver


def schema(catalog: Catalog) -> dict[str, Any]:
    """What an editor completes and checks. `lint` is stricter: a schema cannot follow `extends`."""
    definitions = struct_definitions(FilePart, "")
    whole = definitions.pop("FilePart")
    expect = {}
    for check in catalog.ids:
        params, inner = _params(catalog.check(check).params, f"{check}.")
        definitions.update(inner)
        definitions[check] = params
        title = catalog.title(check)
        expect[check] = {"$ref": f"#/$defs/{check}", "description": title}
    whole["properties"]["expect"] = _by_check(expect, whole["properties"]["expect"]["description"])
    ids = {"enum": list(catalog.ids)}
    waiver = definitions["WaiverPart"]
    waiver["oneOf"] = EITHER
    waiver["properties"]["check"] |= ids
    waiver["properties"]["accepts"]["type"] = ["string", "number", "boolean", "array", "object"]
    waiver["properties"]["any"]["const"] = True
    for part in whole["properties"]["severity"]["anyOf"]:
        if part.get("type") == "object":
            part["propertyNames"] = ids
    listed, chosen = whole["properties"]["fix"]["anyOf"]
    listed["items"] = ids
    chosen["propertyNames"] = ids
    return {
        "$schema": DIALECT,
        **whole,
        "title": "nodevet baseline",
        "description": "What a kind of GPU node should be: docs/baselines.md",
        "$defs": dict(sorted(definitions.items())),
    }


def struct_definitions(kind: type[msgspec.Struct], prefix: str) -> dict[str, dict[str, Any]]:
    """A struct and those inside it, by name, each field with what stands below it."""
    _, made = schema_components([kind], ref_template=f"#/$defs/{prefix}{{name}}")
    found: dict[str, dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(made))
    for each in structs(kind):
        told = found[each.__name__]
        for name, text in field_notes(each).items():
            told["properties"][name]["description"] = text
        if told.get("required") == []:
            del told["required"]
        if "description" in told:
            told["description"] = cleandoc(told["description"])
    _titles_as_descriptions(found)
    return found


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
    found = struct_definitions(params, prefix)
    own = found.pop(params.__name__)
    inner = {f"{prefix}{name}": value for name, value in found.items()}
    if params.whole is not None:
        own = {**own, **own["properties"][params.whole], "properties": {}}
        own.pop("default", None)
    own.pop("required", None)
    choices = [_nullable_fields(own), {"type": "null", "description": "Do not ask for it"}]
    if params.bare is not None:
        choices.insert(0, _plain_only(own["properties"][params.bare]))
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


def _titles_as_descriptions(node: Any) -> None:
    """A title is the name of a class, which says nothing, or the noun of a text."""
    if isinstance(node, list):
        for item in node:
            _titles_as_descriptions(item)
    elif isinstance(node, dict):
        title = node.get("title")
        if isinstance(title, str):
            del node["title"]
            if node.get("type") == "string":
                node.setdefault("description", title)
        for item in node.values():
            _titles_as_descriptions(item)
