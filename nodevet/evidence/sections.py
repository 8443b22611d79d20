"""Which sections evidence has: one for each file of this folder that holds a SectionRecord.

The file's name is the section's, and that of its collector in nodevet/remote/probe/collectors/.
"""

import importlib
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
    found = {name: section_of(name) for name in _names()}
    return {name: record for name, record in found.items() if record}


def section_of(name: str) -> type[SectionRecord] | None:
    """The record of one section; None if none has the name. Raises SectionFileError."""
    if name not in _names():
        return None
    return next(_record_of(importlib.import_module(f"nodevet.evidence.{name}")), None)


def _names() -> tuple[str, ...]:
    return names_in(nodevet.evidence.__path__)


def _record_of(module: ModuleType) -> Iterator[type[SectionRecord]]:
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, SectionRecord)
        and each.__module__ == module.__name__
        and each is not SectionRecord
    ]
    if len(found) > 1:
        names = ", ".join(each.__name__ for each in found)
        raise SectionFileError(f"{module.__file__}: a section has one SectionRecord, not {names}")
    for record in found:
        for path in chain.from_iterable(map(each_key, record.unique)):
            if problem := misses(record, path):
                raise SectionFileError(f"{module.__file__}: unique: {problem}")
    yield from found


def each_key(path: str) -> Iterator[str]:
    """One path for each key that `SectionRecord.unique` joins.

    >>> list(each_key("found[].name+size"))
    ['found[].name', 'found[].size']
    """
    listed, _, keys = path.rpartition(".")
    return (f"{listed}.{key}" for key in keys.split("+"))


def unknown_path(path: str) -> str:
    """Why a path of a check's `reads` is in no evidence; empty if it is.

    >>> unknown_path("gpu.gpus[].persistence_mod")
    "Gpu has no field 'persistence_mod'; did you mean persistence_mode?"
    """
    section, _, rest = path.removeprefix("earlier.").partition(".")
    record = sections().get(section)
    if record is None:
        there = did_you_mean(section, sections(), f"there are {', '.join(sections())}")
        return f"no section is named {section!r}; {there}"
    return misses(record, rest) if rest else ""


def misses(record: type[msgspec.Struct], path: str) -> str:
    """Why a path such as `gpus[].uuid` leads to nothing in a record; empty if it does lead."""
    kind: Any = record
    parts = path.split(".")
    for place, part in enumerate(parts):
        name = part.removesuffix("[]")
        owner = kind
        fields = _fields(owner)
        if name not in fields:
            near = did_you_mean(name, fields)
            return "; ".join(filter(None, (f"{owner.__name__} has no field {name!r}", near)))
        kind = fields[name]
        if kind is None:
            rest = "".join(f".{each}" for each in parts[place + 1 :])
            return f"{owner.__name__}.{name} has no fields: {rest!r}" if rest else ""
    return ""


@cache
def _fields(record: type[msgspec.Struct]) -> Mapping[str, type[msgspec.Struct] | None]:
    """Of each field the record in its type, if there is one."""
    found = msgspec.structs.fields(record)
    return {each.name: next(_structs(each.type), None) for each in found}


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The records in a field's type: `Annotated[tuple[Gpu, ...], bound] | None` has Gpu."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in get_args(kind):
        yield from _structs(part)
