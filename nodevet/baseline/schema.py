"""JSON Schema (draft 2020-12) of a baseline file, for editors."""

from inspect import cleandoc
from typing import Any

import msgspec
from msgspec.json import schema_components

from nodevet.base.json_schema import DIALECT, structs
from nodevet.baseline.format import FilePart
from nodevet.baseline.notes import field_notes
from nodevet.checking.catalog import Catalog
from nodevet.model import CheckParams

EITHER = [{"required": ["accepts"]}, {"required": ["any"]}]  # of a waiver


def schema(catalog: Catalog) -> dict[str, Any]:
    """The schema for editors. `lint` is stricter: a schema cannot follow `extends`."""
    definitions = struct_definitions(FilePart, "")
    file_schema = definitions.pop("FilePart")
    expect = {}
    for check in catalog.ids:
        params, inner = _params(catalog.check(check).params, f"{check}.")
        definitions.update(inner)
        definitions[check] = params
        title = catalog.title(check)
        expect[check] = {"$ref": f"#/$defs/{check}", "description": title}
    file_schema["properties"]["expect"] = _by_check(
        expect, file_schema["properties"]["expect"]["description"]
    )
    ids = {"enum": list(catalog.ids)}
    waiver = definitions["WaiverPart"]
    waiver["oneOf"] = EITHER
    waiver["properties"]["check"] |= ids
    waiver["properties"]["accepts"]["type"] = ["string", "number", "boolean", "array", "object"]
    waiver["properties"]["any"]["const"] = True
    for part in file_schema["properties"]["severity"]["anyOf"]:
        if part.get("type") == "object":
            part["propertyNames"] = ids
    as_list, as_map = file_schema["properties"]["fix"]["anyOf"]
    as_list["items"] = ids
    as_map["propertyNames"] = ids
    return {
        "$schema": DIALECT,
        **file_schema,
        "title": "nodevet baseline",
        "description": "What a kind of GPU node should be: docs/baselines.md",
        "$defs": dict(sorted(definitions.items())),
    }


def struct_definitions(kind: type[msgspec.Struct], prefix: str) -> dict[str, dict[str, Any]]:
    """The definitions of a struct and those inside it, by name, with the notes of fields."""
    _, components = schema_components([kind], ref_template=f"#/$defs/{prefix}{{name}}")
    definitions: dict[str, dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(components))
    for struct in structs(kind):
        definition = definitions[struct.__name__]
        for name, text in field_notes(struct).items():
            definition["properties"][name]["description"] = text
        if definition.get("required") == []:
            del definition["required"]
        if "description" in definition:
            definition["description"] = cleandoc(definition["description"])
    _titles_as_descriptions(definitions)
    return definitions


def _by_check(expect: dict[str, Any], description: str | None) -> dict[str, Any]:
    return {
        "description": description,
        "type": ["object", "null"],
        "properties": expect,
        "additionalProperties": False,
    }


def _params(params: type[CheckParams], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of one check's params, and its definitions, renamed with `prefix`.

    No field is required, because a missing one may be inherited.
    """
    definitions = struct_definitions(params, prefix)
    own = definitions.pop(params.__name__)
    inner = {f"{prefix}{name}": value for name, value in definitions.items()}
    if params.whole is not None:
        own = {**own, **own["properties"][params.whole], "properties": {}}
        own.pop("default", None)
    own.pop("required", None)
    choices = [_nullable_fields(own), {"type": "null", "description": "Do not ask for it"}]
    if params.bare is not None:
        choices.insert(0, _plain_only(own["properties"][params.bare]))
    return {"anyOf": choices}, inner


def _plain_only(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a plain value: not a mapping, which names fields, nor null, which removes."""
    if "anyOf" not in field:
        return field
    choices = [choice for choice in field["anyOf"] if choice.get("type") not in ("object", "null")]
    rest = {key: value for key, value in field.items() if key != "default"}
    return choices[0] if len(choices) == 1 else {**rest, "anyOf": choices}


def _nullable_fields(struct: dict[str, Any]) -> dict[str, Any]:
    """The schema with null for each field, which removes an inherited one."""
    nullable = {name: _nullable(field) for name, field in struct["properties"].items()}
    others = struct["additionalProperties"]  # params of free names says what each may be
    return {
        **struct,
        "properties": nullable,
        "additionalProperties": _nullable(others) if isinstance(others, dict) else others,
    }


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    choices = field.get("anyOf", [field])
    if {"type": "null"} in choices:
        return field
    return {"anyOf": [*choices, {"type": "null"}]}


def _titles_as_descriptions(node: Any) -> None:
    """Remove titles: of texts they become descriptions; others are only names of classes."""
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
