"""Explain why a tree is not of a type, by walking it along msgspec's description of the type."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from math import isfinite
from typing import Any

import msgspec
from msgspec import inspect

from nodevet.base.printable import brief, sentence
from nodevet.base.problems import Place, did_you_mean, or_list, quoted
from nodevet.base.typed import convert
from nodevet.document.tree import Broken, Complaint, Node, Scalar, Sequence, Spot, follow, plain
from nodevet.document.tree import Mapping as Map
from nodevet.model import FieldError

NULL = "null"

LISTS = (
    inspect.ListType,
    inspect.VarTupleType,
    inspect.TupleType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.CollectionType,
)
MAPPINGS = (inspect.StructType, inspect.DictType)
BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "gt": ("more than", lambda value, bound: value > bound),
    "ge": ("at least", lambda value, bound: value >= bound),
    "lt": ("less than", lambda value, bound: value < bound),
    "le": ("at most", lambda value, bound: value <= bound),
    "multiple_of": ("a multiple of", lambda value, bound: value % bound == 0),
}


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """The requirement of one member of a type that a value does not meet."""

    noun: str
    text: bool = False  # the value would meet it as text
    choices: tuple[str, ...] = ()


def _complaint(spot: Spot, message: str, advice: str = "") -> Complaint:
    return Complaint(path=spot.path, place=spot.node.place, message=message, advice=advice)


def _inner(spot: Spot, node: Node, step: str | int, key: Place | None = None) -> Spot:
    return Spot(node=node, path=(*spot.path, step), key=key or node.place)


def misfits(root: Node, kind: type, refusal: str) -> tuple[Complaint, ...]:
    """All complaints; `refusal` is the message if there is none."""
    spot = Spot(node=root, path=(), key=root.place)
    complaints = tuple(_misfits(spot, inspect.type_info(kind)))
    if not complaints and refusal and not _is_broken(root):
        return (_complaint(spot, sentence(refusal)),)
    return complaints


def _is_broken(node: Node) -> bool:
    """Whether a value in the node has a problem that is reported already."""
    if isinstance(node, Map):
        return any(_is_broken(entry.value) for entry in node.entries)
    if isinstance(node, Sequence):
        return any(map(_is_broken, node.items))
    return isinstance(node, Broken)


def _misfits(spot: Spot, kind: inspect.Type) -> Iterator[Complaint]:
    node = spot.node
    members = tuple(_members(kind))
    bare = tuple(map(_bare, members))
    if isinstance(node, Broken) or any(isinstance(member, inspect.AnyType) for member in bare):
        return
    if isinstance(node, Map):
        mapping = next((member for member in bare if isinstance(member, MAPPINGS)), None)
        if mapping is not None:
            yield from _in_mapping(spot, node, mapping)
            return
    if isinstance(node, Sequence):
        sequence = next((member for member in bare if isinstance(member, LISTS)), None)
        if sequence is not None:
            yield from _in_list(spot, node, sequence)
            return
    needs = [_need(node, member) for member in members]
    if all(needs):
        nouns = dict.fromkeys(need.noun for need in needs if need)
        if len(nouns) > 1:
            nouns.pop(NULL, None)  # null is never what people mean
        message = f"must be {or_list(nouns)}, not {_actual_text(node)}"
        yield _complaint(spot, message, _advice(node, [need for need in needs if need]))


def _members(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The members of a union, or the type itself."""
    bare = _bare(kind)
    if isinstance(bare, inspect.UnionType):
        for member in bare.types:
            yield from _members(member)
    else:
        yield kind


def _bare(kind: inspect.Type) -> inspect.Type:
    return _bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _in_list(spot: Spot, node: Sequence, kind: Any) -> Iterator[Complaint]:
    size, minimum, maximum = len(node.items), kind.min_length, kind.max_length
    if minimum is not None and size < minimum:
        advice = "remove it, or fill it in" if size == 0 else ""
        actual = "an empty list" if size == 0 else f"of {size}"
        yield _complaint(spot, f"must be a list of at least {minimum}, not {actual}", advice)
    if maximum is not None and size > maximum:
        yield _complaint(spot, f"must be a list of at most {maximum}, not of {size}")
    for index, item in enumerate(node.items):
        yield from _misfits(_inner(spot, item, index), kind.item_type)


def _in_mapping(spot: Spot, node: Map, kind: Any) -> Iterator[Complaint]:
    if isinstance(kind, inspect.StructType):
        yield from _in_struct(spot, node, kind)
        return
    size, minimum, maximum = len(node.entries), kind.min_length, kind.max_length
    if minimum is not None and size < minimum:
        yield _complaint(spot, f"must be a mapping of at least {minimum}, not of {size}")
    if maximum is not None and size > maximum:
        yield _complaint(spot, f"must be a mapping of at most {maximum}, not of {size}")
    for entry in node.entries:
        inner = _inner(spot, entry.value, entry.key, entry.place)
        key = Scalar(place=entry.place, value=entry.key, text=entry.key)
        need = _need(key, kind.key_type)
        if need:
            message = f"the key must be {need.noun}"
            yield Complaint(path=inner.path, place=entry.place, message=message)
        yield from _misfits(inner, kind.value_type)


def _in_struct(spot: Spot, node: Map, kind: inspect.StructType) -> Iterator[Complaint]:
    fields = {field.encode_name: field for field in kind.fields}
    wrong = False
    for field in fields.values():
        if field.required and node.get(field.encode_name) is None:
            wrong = True
            yield _missing(spot, field.encode_name)
    for entry in node.entries:
        inner = _inner(spot, entry.value, entry.key, entry.place)
        known = fields.get(entry.key)
        complaints = _misfits(inner, known.type) if known else _unknown(inner, entry.key, kind)
        for complaint in complaints:
            wrong = True
            yield complaint
    if not wrong and not _is_broken(node):
        yield from _own_rules(spot, node, kind)


def _missing(spot: Spot, field: str) -> Complaint:
    message = f"{brief(field)} is missing"
    return Complaint(path=spot.path, place=spot.key, message=message, advice="add it", missing=True)


def _unknown(spot: Spot, key: str, kind: inspect.StructType) -> Iterator[Complaint]:
    if kind.forbid_unknown_fields:
        known = [field.encode_name for field in kind.fields]
        advice = did_you_mean(key, known, f"known here: {', '.join(known)}" if known else "")
        message = "is not a known key here"
        yield Complaint(path=spot.path, place=spot.key, message=message, advice=advice)


def _own_rules(spot: Spot, node: Map, kind: inspect.StructType) -> Iterator[Complaint]:
    """The complaints of `__post_init__`, after every field has its type."""
    try:
        convert(plain(node), kind.cls)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, TypeError):
            raise cause from None  # a fault in the rule itself
        if isinstance(cause, ValueError):
            for fault in (cause, *getattr(cause, "more", ())):
                inner = follow(node, fault.path if isinstance(fault, FieldError) else ())
                message, _, advice = str(fault).partition("; ")
                place = Spot(path=(*spot.path, *inner.path), node=inner.node, key=inner.key)
                yield _complaint(place, sentence(message), sentence(advice))


def _need(node: Node, kind: inspect.Type) -> Requirement | None:
    """The requirement that the node does not meet, or None. The title of a `Meta` names it."""
    title = ""
    while isinstance(kind, inspect.Metadata):
        title = title or (kind.extra_json_schema or {}).get("title", "")
        kind = kind.type
    need = _need_for(node.value if isinstance(node, Scalar) else node, kind)
    if need is not None and isinstance(kind, inspect.StrType) and isinstance(node, Scalar):
        as_text = not isinstance(node.value, str) and _text(node.text, kind) is None
        need = msgspec.structs.replace(need, text=as_text)
    return msgspec.structs.replace(need, noun=title) if need and title else need


def _need_for(value: object, kind: Any) -> Requirement | None:
    if isinstance(kind, inspect.NoneType):
        return None if value is None else Requirement(noun=NULL)
    if isinstance(kind, inspect.BoolType):
        return None if isinstance(value, bool) else Requirement(noun="true or false")
    if isinstance(kind, inspect.IntType):
        return _number(value, kind) if type(value) is int else Requirement(noun="a whole number")
    if isinstance(kind, inspect.FloatType):
        return _number(value, kind) if type(value) in (int, float) else Requirement(noun="a number")
    if isinstance(kind, inspect.StrType):
        return _text(value, kind) if isinstance(value, str) else Requirement(noun="text")
    if isinstance(kind, inspect.LiteralType):
        return _choice(value, kind.values)
    if isinstance(kind, inspect.EnumType):
        return _choice(value, [member.value for member in kind.cls])
    if isinstance(kind, inspect.DateType):
        return None if _is_date(value) else Requirement(noun="a date such as 2026-12-31")
    if isinstance(kind, LISTS):
        return Requirement(noun="a list")
    return Requirement(noun="a mapping") if isinstance(kind, MAPPINGS) else None


def _number(value: Any, kind: Any) -> Requirement | None:
    if not isfinite(value):
        return Requirement(noun="a finite number")
    for name, (words, holds) in BOUNDS.items():
        bound = getattr(kind, name)
        if bound is not None and not holds(value, bound):
            return Requirement(noun=f"{words} {bound:g}")
    return None


def _text(value: str, kind: inspect.StrType) -> Requirement | None:
    if kind.min_length is not None and len(value) < kind.min_length:
        return Requirement(noun=f"text of at least {kind.min_length} characters")
    if kind.max_length is not None and len(value) > kind.max_length:
        return Requirement(noun=f"text of at most {kind.max_length} characters")
    if kind.pattern is None:
        return None
    match = re.search(kind.pattern, value)
    if match and not (kind.pattern.endswith("$") and match.end() < len(value)):
        return None
    return Requirement(noun=f"text that matches {kind.pattern}")


def _choice(value: object, known: Iterable[object]) -> Requirement | None:
    if any(type(choice) is type(value) and choice == value for choice in known):
        return None
    words = tuple(_word(choice) for choice in known)
    noun = f"one of {', '.join(words)}" if len(words) > 1 else words[0]
    return Requirement(noun=noun, choices=words)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_date(value: object) -> bool:
    try:
        convert(value, date)
    except msgspec.ValidationError:
        return False
    return True


def _actual_text(node: Node) -> str:
    if isinstance(node, Scalar):
        return node.text if _is_number(node) else quoted(node.value)
    return "a list" if isinstance(node, Sequence) else "a mapping"


def _is_number(node: Scalar) -> bool:
    return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)


def _advice(node: Node, needs: list[Requirement]) -> str:
    if not isinstance(node, Scalar):
        return ""
    text = any(need.text for need in needs)
    if text and _is_number(node) and str(node.value) != node.text:
        number = f"{node.text} without quotes is the number {node.value}"
        return f'{number}; write "{node.text}"'
    if text and node.value is not None:
        return f'write "{brief(node.text)}"'
    return _advice_for_text(node.value, needs) if isinstance(node.value, str) else ""


def _advice_for_text(text: str, needs: list[Requirement]) -> str:
    for need in needs:
        if need.choices and (near := did_you_mean(text, need.choices)):
            return near
        if need.noun.endswith("number") and _looks_like_number(text):
            return f"write {text} without quotes"
        if need.noun == "true or false" and text.lower() in ("true", "false"):
            return f"write {text.lower()} without quotes"
    return ""


def _looks_like_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and text.isascii()
