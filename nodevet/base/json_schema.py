"""JSON Schemas (draft 2020-12) of documents, from their types. The comment beside a field in its
class is the field's description."""

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_type_hints

import msgspec

from nodevet.base.schema_kinds import Document

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
    (reference,), definitions = msgspec.json.schema_components((kind,), ref_template=REFERENCE)
    annotate(definitions, (kind,))
    definitions[kind.__name__]["properties"][field] = {"const": version}
    return with_title(name, about, reference, definitions)


def of_answers(
    name: str, about: str, answers: Mapping[type[msgspec.Struct], tuple[str, ...]]
) -> Document:
    """The schema of documents of several classes, each with the values of its `kind`."""
    references, definitions = msgspec.json.schema_components(tuple(answers), ref_template=REFERENCE)
    annotate(definitions, tuple(answers))
    for struct, kinds in answers.items():
        definition = definitions[struct.__name__]
        definition["properties"] = {"kind": {"enum": list(kinds)}, **definition["properties"]}
        definition["required"] = ["kind", *definition.get("required", ())]
    return with_title(name, about, {"anyOf": list(references)}, definitions)


def of_type(name: str, about: str, kind: Any) -> Document:
    """The schema of documents of one type, which name no kind."""
    (body,), definitions = msgspec.json.schema_components((kind,), ref_template=REFERENCE)
    annotate(definitions, (kind,))
    return with_title(name, about, body, definitions)


def with_title(name: str, about: str, body: Document, definitions: Document) -> Document:
    return {
        "$schema": DIALECT,
        "title": f"nodevet {name}",
        "description": about,
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def annotate(definitions: Document, kinds: tuple[type[Any], ...]) -> None:
    """Add the docstrings of classes and the comments of fields to definitions, and remove defaults
    that are whole records."""
    for definition in definitions.values():
        for field in definition.get("properties", {}).values():
            if isinstance(field.get("default"), dict):
                del field["default"]
    for struct in structs(*kinds):
        definition = definitions.get(struct.__name__)
        if definition is None:
            continue
        definition["description"] = inspect.cleandoc(struct.__doc__ or "")
        for name, note in _notes(struct).items():
            if name in definition.get("properties", {}):
                definition["properties"][name].setdefault("description", note)


def structs(*kinds: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs among these types and in their fields, each once."""
    queue, structs_seen = list(kinds), set()
    while queue:
        kind = queue.pop()
        queue += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in structs_seen:
            structs_seen.add(kind)
            queue += get_type_hints(kind).values()
            yield kind


def _notes(kind: type) -> Mapping[str, str]:
    """The comment behind each field of a class and its bases."""
    notes: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base is not msgspec.Struct and issubclass(base, msgspec.Struct):
            notes.update(_comments(base))
    return {name: note.strip() for name, note in notes.items()}


@cache
def _comments(kind: type) -> list[tuple[str, str]]:
    return _NOTED.findall(inspect.getsource(kind))
