"""If one part of a node lacks a value that another part of the same model has, the value is unread,
not unsupported."""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from typing import Any, TypeVar, get_args

from msgspec.structs import fields, replace

from nodevet.evidence.core import NOT_SUPPORTED, Record

LACKING = frozenset(
    {
        *NOT_SUPPORTED,
        "NVML_ERROR_FUNCTION_NOT_FOUND",
        "NVML_ERROR_INVALID_ARGUMENT",
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    }
)
"""NVML's errors if a GPU or its driver does not support a value."""

Part = TypeVar("Part", bound=Record)
Path = tuple[str, ...]


def mark_unread_values(
    parts: Sequence[Part], *, is_alike: Callable[[Part, Part], bool], label: Callable[[Part], str]
) -> tuple[Part, ...]:
    """The same parts; a value that one lacks and a part like it has is unread, not unsupported."""
    together = _by_path(parts)
    if not any(_has(together, path) for path in _unsupported(together)):
        return tuple(parts)
    records = [_by_path((part,)) for part in parts]
    unsupported = [_unsupported(by_path) for by_path in records]
    paths = {path for missing in unsupported for path in missing}
    read = [frozenset(path for path in paths if _has(by_path, path)) for by_path in records]
    read_somewhere = frozenset().union(*read)

    def of_others(part: Part) -> list[tuple[str, Set[Path]]]:
        """The names of parts like this one, and what they have."""
        pairs = zip(parts, read, strict=True)
        alike = (
            (other, has) for other, has in pairs if other is not part and is_alike(part, other)
        )
        return [(label(other), has) for other, has in alike if has]

    return tuple(
        _unread(part, reasons)
        if not read_somewhere.isdisjoint(missing.keys() - own)
        and (reasons := _read_by_others(missing, own, of_others(part)))
        else part
        for part, missing, own in zip(parts, unsupported, read, strict=True)
    )


def _read_by_others(
    missing: Mapping[Path, str], own: Set[Path], others: Sequence[tuple[str, Set[Path]]]
) -> dict[Path, str]:
    """{path: reason} of each value that a part lacks and a part like it has."""
    owners = {path: next((name for name, has in others if path in has), "") for path in missing}
    return {
        path: f"{why}, but {owners[path]} of the same model has it"
        for path, why in missing.items()
        if owners[path] and path not in own
    }


def _by_path(parts: Sequence[Record]) -> dict[Path, Sequence[Record]]:
    """The parts, and the records in them, by path."""
    by_path: dict[Path, Sequence[Record]] = {(): parts}
    waiting: list[Path] = [()] if parts else []
    for path in waiting:
        records = by_path[path]
        for field in _record_fields(type(records[0])):
            if inner := [each for record in records for each in _records_in(record, field)]:
                below = (*path, field)
                by_path[below] = inner
                waiting.append(below)
    return by_path


def _unsupported(by_path: Mapping[Path, Sequence[Record]]) -> dict[Path, str]:
    """{path: reason} of unsupported values; of items in a list the first reason."""
    reasons: dict[Path, str] = {}
    for path, records in by_path.items():
        names: dict[str, str] = {}
        for record in records:
            for name, why in record.errors.items():
                if name not in names and why in LACKING and getattr(record, name, None) is None:
                    names[name] = why
        reasons |= {(*path, name): why for name, why in names.items()}
    return reasons


@cache
def _record_fields(kind: type[Record]) -> tuple[str, ...]:
    """The fields of such a record that may hold records."""
    return tuple(field.name for field in fields(kind) if _holds_records(field.type))


def _holds_records(kind: Any) -> bool:
    is_record = isinstance(kind, type) and issubclass(kind, Record)
    return is_record or any(map(_holds_records, get_args(kind)))


def _records_in(record: Record, name: str) -> Sequence[Record]:
    value = None if name in record.apart else getattr(record, name)
    if isinstance(value, Record):
        return (value,)
    if isinstance(value, tuple):
        return [item for item in value if isinstance(item, Record)]
    return ()


def _has(by_path: Mapping[Path, Sequence[Record]], path: Path) -> bool:
    """Whether there is a value at a path; in a list of any item."""
    *above, name = path
    records = by_path.get(tuple(above), ())
    return any(getattr(record, name, None) is not None for record in records)


def _unread(record: Part, unread: Mapping[Path, str]) -> Part:
    """The record with other reasons for these values."""
    own_reasons = {path[0]: why for path, why in unread.items() if len(path) == 1}
    changes: dict[str, object] = {
        "errors": {name: own_reasons.get(name, why) for name, why in record.errors.items()}
    }
    for name in {path[0] for path in unread if len(path) > 1}:
        inner = {path[1:]: why for path, why in unread.items() if path[0] == name and path[1:]}
        value = getattr(record, name)
        changes[name] = (
            tuple(_unread(item, inner) for item in value)
            if isinstance(value, tuple)
            else _unread(value, inner)
        )
    return replace(record, **changes)


def is_same(value: object, other: object) -> bool:
    """Whether two values are equal, or one is unknown."""
    return value is None or other is None or value == other
