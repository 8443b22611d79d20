"""The sections of evidence: one for each file of this folder with a SectionRecord.

The file's name is the section's, and that of its collector in nodevet/remote/probe/collectors/.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from types import ModuleType
from typing import Any, get_args

import msgspec

import nodevet.evidence
from nodevet.base.features import names_in
from nodevet.base.problems import did_you_mean
from nodevet.evidence.core import SectionRecord


class SectionFileError(Exception):
    """A section's file that cannot be used; the message names it."""


@cache
def sections() -> Mapping[str, type[SectionRecord]]:
    """The record of every section, by the section's name. Raises SectionFileError."""
    records_by_name = {name: section_of(name) for name in _names()}
    records = {name: record for name, record in records_by_name.items() if record}
    for record in records.values():
        _check_unique(record)
    return records


def section_of(name: str) -> type[SectionRecord] | None:
    """The record of a section; None for an unknown name. Raises SectionFileError."""
    if not _has_file(name):
        return None
    return _record_of(importlib.import_module(f"nodevet.evidence.{name}"))


def _names() -> tuple[str, ...]:
    return names_in(nodevet.evidence.__path__)


def _has_file(name: str) -> bool:
    """Whether a name, which may come from a node, is that of a file here."""
    is_name = name.isidentifier() and name != "__init__"
    return is_name and any(
        os.path.isfile(f"{folder}/{name}.py")  # noqa: PTH113 (pathlib takes longer)
        for folder in nodevet.evidence.__path__
    )


def _record_of(module: ModuleType) -> type[SectionRecord] | None:
    records = [
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, SectionRecord)
        and member.__module__ == module.__name__
        and member is not SectionRecord
    ]
    if len(records) > 1:
        names = ", ".join(member.__name__ for member in records)
        raise SectionFileError(f"{module.__file__}: a section has one SectionRecord, not {names}")
    return records[0] if records else None


def _check_unique(record: type[SectionRecord]) -> None:
    """Raises SectionFileError if `unique` names a field that the record lacks."""
    for path in chain.from_iterable(map(key_paths, record.unique)):
        if problem := missing_field(record, path):
            file = sys.modules[record.__module__].__file__
            raise SectionFileError(f"{file}: unique: {problem}")


def key_paths(path: str) -> Iterator[str]:
    """One path for each key that `SectionRecord.unique` joins.

    >>> list(key_paths("found[].name+size"))
    ['found[].name', 'found[].size']
    """
    prefix, _, keys = path.rpartition(".")
    return (f"{prefix}.{key}" for key in keys.split("+"))


def unknown_path(path: str) -> str:
    """Why a path of a check's `reads` is not in evidence; "" if it is.

    >>> unknown_path("gpu.gpus[].persistence_mod")
    "Gpu has no field 'persistence_mod'; did you mean persistence_mode?"
    """
    section, _, field_path = path.removeprefix("earlier.").partition(".")
    record = sections().get(section)
    if record is None:
        hint = did_you_mean(section, sections(), f"there are {', '.join(sections())}")
        return f"no section is named {section!r}; {hint}"
    return missing_field(record, field_path) if field_path else ""


def missing_field(record: type[msgspec.Struct], path: str) -> str:
    """Why a record lacks a path such as `gpus[].uuid`; "" if it has it."""
    kind: Any = record
    parts = path.split(".")
    for index, part in enumerate(parts):
        name = part.removesuffix("[]")
        owner = kind
        fields = _fields(owner)
        if name not in fields:
            hint = did_you_mean(name, fields)
            return "; ".join(filter(None, (f"{owner.__name__} has no field {name!r}", hint)))
        kind = fields[name]
        if kind is None:
            remaining = "".join(f".{name_after}" for name_after in parts[index + 1 :])
            return f"{owner.__name__}.{name} has no fields: {remaining!r}" if remaining else ""
    return ""


@cache
def _fields(record: type[msgspec.Struct]) -> Mapping[str, type[msgspec.Struct] | None]:
    """{field: the record in its type, or None}."""
    struct_fields = msgspec.structs.fields(record)
    return {field.name: next(_structs(field.type), None) for field in struct_fields}


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The records in a field's type: `Annotated[tuple[Gpu, ...], bound] | None` has Gpu."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in get_args(kind):
        yield from _structs(part)
