"""Evidence taken apart into what stays and what differs between two looks, and put together. Pure.

The rest of a value is a mapping of what was cut out of it; of a value that stays but had something
cut out of it, its own rest; of a list, the rests of its items. So putting together needs no
declarations: what is in the rest and not in the value was cut out, and what is in both goes deeper.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

import msgspec

from nodevet import typed
from nodevet.evidence.core import Record, SectionRecord
from nodevet.evidence.sections import sections

Plan = Mapping[str, Any]
"""Of a record: field -> None if it is volatile, else the plan of what lies in it."""


class Apart(msgspec.Struct, frozen=True):
    """A document that was taken apart."""

    steady: Mapping[str, bytes]  # by section; those of the earlier reading as `earlier.NAME`
    volatile: bytes


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: msgspec.Raw
    why: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    seconds: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    before_s: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_TOP = typed.decoder(dict[str, msgspec.Raw])
_SECTION = typed.decoder(_Section)
_ANY = typed.decoder(Any)
_ENCODE = msgspec.json.Encoder().encode
EARLIER = "earlier."
ENVELOPE = ("seconds", "before_s")


def plan_of(name: str) -> Plan:
    """What is volatile in a section, by its record's declarations."""
    record = sections().get(name)
    return _plan(record) if record else {}


@cache
def _plan(record: type[msgspec.Struct]) -> Plan:
    cut: tuple[str, ...] = getattr(record, "volatile", ())
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(record):
        if field.name in cut:
            found[field.encode_name] = None
        elif (inner := _inner(field.type)) and (plan := _plan(inner)):
            found[field.encode_name] = plan
    return found


def _inner(kind: Any) -> type[Record] | None:
    """The record in a field's type: alone, optional, or as the items of a list or a mapping."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind if not issubclass(kind, SectionRecord) else None  # type: ignore[return-value]
    for each in get_args(kind):
        if found := _inner(each):
            return found
    return None


def apart(document: bytes) -> Apart | None:
    """None for what cannot be taken apart: it is kept whole."""
    try:
        top = _TOP.decode(document)
        steady: dict[str, bytes] = {}
        rest: dict[str, Any] = {}
        for key, raw in top.items():
            if key in ("sections", "earlier") and _is_object(raw):
                prefix = EARLIER if key == "earlier" else ""
                rest[key] = {}
                for name, section in _TOP.decode(raw).items():
                    if name.startswith(EARLIER):
                        return None
                    steady[prefix + name], rest[key][name] = _cut(plan_of(name), section)
            else:
                rest[key] = raw
        taken = Apart(steady, _ENCODE(rest))
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError, OverflowError):
        return None
    return taken


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


def _cut(plan: Plan, raw: msgspec.Raw) -> tuple[bytes, Any]:
    try:
        section = _SECTION.decode(raw)
    except msgspec.DecodeError:  # not as sections are: it stays as it is
        return bytes(raw), {}
    rest: dict[str, Any] = {}
    for key in ENVELOPE:
        value = getattr(section, key)
        if value is not msgspec.UNSET:
            rest[key] = value
    data = section.data
    if plan and data is not msgspec.UNSET and _is_object(data):
        value = _ANY.decode(data)
        if cut := _taken(plan, value):
            rest["data"] = cut
        data = msgspec.Raw(_ENCODE(value))
    left = {"status": section.status}
    if section.why is not msgspec.UNSET:
        left["why"] = section.why
    if data is not msgspec.UNSET:
        left["data"] = data
    return _ENCODE(left), rest


def _taken(plan: Plan, value: Any) -> Any:
    """What the plan cuts out of a value, which is changed; empty if that is nothing."""
    if type(value) is list:
        rests = [_taken(plan, item) for item in value]
        return rests if any(rests) else 0
    if type(value) is not dict:
        return 0
    rest: dict[str, Any] = {}
    known = False
    for key, inner in plan.items():
        if key in value:
            known = True
            if inner is None:
                rest[key] = value.pop(key)
            elif cut := _taken(inner, value[key]):
                rest[key] = cut
    if not known and value:  # a mapping of records by name
        for key, item in value.items():
            if type(item) is dict and (cut := _taken(plan, item)):
                rest[key] = cut
    return rest


def together(steady: Mapping[str, bytes], volatile: bytes) -> bytes:
    """The document again, equal value for value; with some of its sections, of these alone."""
    rest = _TOP.decode(volatile)
    document: dict[str, Any] = {}
    for key, raw in rest.items():
        if key in ("sections", "earlier") and _is_object(raw):
            prefix = EARLIER if key == "earlier" else ""
            document[key] = {
                name: msgspec.Raw(_joined(steady[prefix + name], cut))
                for name, cut in _TOP.decode(raw).items()
                if prefix + name in steady
            }
        else:
            document[key] = raw
    return _ENCODE(document)


def _joined(steady: bytes, rest: msgspec.Raw) -> bytes:
    if bytes(rest) == b"{}":
        return steady
    cut = _TOP.decode(rest)
    if "data" not in cut:  # the usual case: how long it took
        inner = bytes(rest)[1:]
        return steady[:-1] + b"," + inner
    return _ENCODE(_merged(_ANY.decode(steady), _ANY.decode(rest)))


def _merged(value: Any, rest: Any) -> Any:
    if type(rest) is list and type(value) is list:
        return [_merged(item, cut) if cut else item for item, cut in zip(value, rest, strict=True)]
    for key, cut in rest.items():
        if key in value:
            if cut:
                value[key] = _merged(value[key], cut)
        else:
            value[key] = cut
    return value
