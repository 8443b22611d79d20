"""A value that one part of a node lacks and another part of its model has was not read: no feature
of the model is missing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args

from msgspec.structs import fields, replace

from nodevet.evidence.core import NOT_SUPPORTED, Record

LACKING = (
    *NOT_SUPPORTED,
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
)
"""What NVML answers if a GPU, or its driver, cannot tell a value."""

Part = TypeVar("Part", bound=Record)
Path = tuple[str, ...]


def compared(
    parts: Sequence[Part], *, alike: Callable[[Part, Part], bool], label: Callable[[Part], str]
) -> tuple[Part, ...]:
    """The same parts; a value that one lacks and a part like it has is unread, not unsupported."""
    lacking = [_lacking(part) for part in parts]
    return tuple(
        _unread(part, wrong)
        if (wrong := dict(_told_by_others(part, lacks, parts, alike, label)))
        else part
        for part, lacks in zip(parts, lacking, strict=True)
    )


def _told_by_others(
    part: Part,
    lacks: Mapping[Path, str],
    parts: Sequence[Part],
    alike: Callable[[Part, Part], bool],
    label: Callable[[Part], str],
) -> Iterator[tuple[Path, str]]:
    """Each value that the part lacks altogether, and why that is no feature that is missing."""
    if not lacks:
        return
    others = [each for each in parts if each is not part and alike(part, each)]
    for path, why in lacks.items():
        teller = next((each for each in others if _has(each, path)), None)
        if teller is not None and not _has(part, path):
            yield path, f"{why}, but {label(teller)} of the same model has it"


def _lacking(record: Record) -> dict[Path, str]:
    """The values that NVML cannot tell, by their path; of items in a list the first reason."""
    found: dict[Path, str] = {}
    for path, each in _records(record):
        for name, why in each.errors.items():
            if why in LACKING and getattr(each, name, None) is None:
                found.setdefault((*path, name), why)
    return found


def _records(record: Record, path: Path = ()) -> Iterator[tuple[Path, Record]]:
    yield path, record
    for name in _holders(type(record)):
        for each in _below(record, name):
            yield from _records(each, (*path, name))


@cache
def _holders(kind: type[Record]) -> tuple[str, ...]:
    """The fields of such a record that may hold records."""
    return tuple(each.name for each in fields(kind) if _holds_records(each.type))


def _holds_records(kind: Any) -> bool:
    is_record = isinstance(kind, type) and issubclass(kind, Record)
    return is_record or any(map(_holds_records, get_args(kind)))


def _below(record: Record, name: str) -> Sequence[Record]:
    value = None if name in record.apart else getattr(record, name)
    if isinstance(value, Record):
        return (value,)
    if isinstance(value, tuple):
        return [each for each in value if isinstance(each, Record)]
    return ()


def _has(record: Record, path: Path) -> bool:
    """Whether a value is told there; in a list, by any item."""
    first, *rest = path
    if rest:
        return any(_has(each, tuple(rest)) for each in _below(record, first))
    return getattr(record, first, None) is not None


def _unread(record: Part, wrong: Mapping[Path, str]) -> Part:
    """The record with other reasons for these values."""
    own = {path[0]: why for path, why in wrong.items() if len(path) == 1}
    changes: dict[str, object] = {
        "errors": {name: own.get(name, why) for name, why in record.errors.items()}
    }
    for name in {path[0] for path in wrong if len(path) > 1}:
        inner = {path[1:]: why for path, why in wrong.items() if path[0] == name and path[1:]}
        value = getattr(record, name)
        changes[name] = (
            tuple(_unread(each, inner) for each in value)
            if isinstance(value, tuple)
            else _unread(value, inner)
        )
    return replace(record, **changes)


def is_same(one: object, other: object) -> bool:
    """Whether two values are the same, or one of them is not known."""
    return one is None or other is None or one == other
