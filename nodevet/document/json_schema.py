"""JSON Schemas (draft 2020-12) of documents, from the types that they are written with. What stands
beside a field in its class is the field's description."""

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

from nodevet.document.schema_kinds import Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{name}"
_NOTED = re.compile(r"^    (\w+): [^#\n]*#(.*)$", re.MULTILINE)


def of_struct(
    name: str,
    about: str,
    kind: type[msgspec.Struct],
    field: str,
    version: int,
) -> Document:
    """The schema of a document of one class, whose `field` holds its `version`."""
    (told,), definitions = msgspec.json.schema_components((kind,), ref_template=REFERENCE)
    annotate(definitions, (kind,))
    definitions[kind.__name__]["properties"][field] = {"const": version}
    return titled(name, about, told, definitions)


def of_answers(
    name: str, about: str, answers: Mapping[type[msgspec.Struct], tuple[str, ...]]
) -> Document:
    """The schema of documents of several classes, each with what its `kind` says."""
    told, definitions = msgspec.json.schema_components(tuple(answers), ref_template=REFERENCE)
    annotate(definitions, tuple(answers))
    for struct, kinds in answers.items():
        found = definitions[struct.__name__]
        found["properties"] = {"kind": {"enum": list(kinds)}, **found["properties"]}
        found["required"] = ["kind", *found.get("required", ())]
    return titled(name, about, {"anyOf": list(told)}, definitions)


def titled(name: str, about: str, told: Document, definitions: Document) -> Document:
    return {
        "$schema": DIALECT,
        "title": f"nodevet {name}",
        "description": about,
        **told,
        "$defs": dict(sorted(definitions.items())),
    }


def annotate(definitions: Document, kinds: tuple[type[Any], ...]) -> None:
    """Give definitions what their classes say of themselves and of their fields; take what a
    record is if nothing of it is said, which is long and says nothing."""
    for found in definitions.values():
        for field in found.get("properties", {}).values():
            if isinstance(field.get("default"), dict):
                del field["default"]
    for each in structs(*kinds):
        found = definitions.get(each.__name__)
        if found is None:
            continue
        found["description"] = inspect.cleandoc(each.__doc__ or "")
        for name, note in _notes(each).items():
            if name in found.get("properties", {}):
                found["properties"][name].setdefault("description", note)


def structs(*kinds: Any) -> Iterator[type[msgspec.Struct]]:
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
            found.update(_comments(each))
    return {name: note.strip() for name, note in found.items()}


@cache
def _comments(kind: type) -> list[tuple[str, str]]:
    return _NOTED.findall(inspect.getsource(kind))
