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


def compared(
    parts: Sequence[Part], *, is_alike: Callable[[Part, Part], bool], label: Callable[[Part], str]
) -> tuple[Part, ...]:
    """The same parts; a value that one lacks and a part like it has is unread, not unsupported."""
    unsupported = [_unsupported(part) for part in parts]
    paths = {path for missing in unsupported for path in missing}
    read = [frozenset(path for path in paths if _has(part, path)) for part in parts]
    if not any(read):
        return tuple(parts)

    def of_others(part: Part) -> list[tuple[str, Set[Path]]]:
        """The names of parts like this one, and what they have."""
        pairs = zip(parts, read, strict=True)
        alike = (
            (other, has) for other, has in pairs if other is not part and is_alike(part, other)
        )
        return [(label(other), has) for other, has in alike if has]

    return tuple(
        _unread(part, reasons)
        if (reasons := _read_by_others(missing, own, of_others(part)))
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


def _unsupported(record: Record) -> dict[Path, str]:
    """{path: reason} of unsupported values; of items in a list the first reason."""
    reasons: dict[Path, dict[str, str]] = {}
    _add_unsupported(reasons, record, ())
    return {(*path, name): why for path, names in reasons.items() for name, why in names.items()}


def _add_unsupported(reasons: dict[Path, dict[str, str]], record: Record, path: Path) -> None:
    if record.errors:
        names = reasons.setdefault(path, {})
        for name, why in record.errors.items():
            if name not in names and why in LACKING and getattr(record, name, None) is None:
                names[name] = why
    for field in _record_fields(type(record)):
        inner_path = (*path, field)
        for inner in _records_in(record, field):
            _add_unsupported(reasons, inner, inner_path)


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


def _has(record: Record, path: Path) -> bool:
    """Whether a record has a value at a path; in a list any item."""
    if len(path) == 1:
        return getattr(record, path[0], None) is not None
    return any(_has(inner, path[1:]) for inner in _records_in(record, path[0]))


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
