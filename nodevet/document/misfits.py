"""Why a tree is not of a type: it is walked along what msgspec says of the type."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from math import isfinite
from typing import Any

import msgspec
from msgspec import inspect

from nodevet.base.printable import brief, sentence
from nodevet.base.problems import Place, did_you_mean, either, quoted
from nodevet.base.typed import convert
from nodevet.document.complaint import Complaint
from nodevet.document.tree import Broken, Node, Scalar, Sequence, Spot, follow, plain
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


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What one member of a type asks for, where a value is something else."""

    noun: str
    text: bool = False  # the value would do, if it were text
    choices: tuple[str, ...] = ()


def _at(spot: Spot, message: str, advice: str = "") -> Complaint:
    return Complaint(path=spot.path, place=spot.node.place, message=message, advice=advice)


def _inner(spot: Spot, node: Node, step: str | int, key: Place | None = None) -> Spot:
    return Spot(node=node, path=(*spot.path, step), key=key or node.place)


def misfits(root: Node, kind: type, refusal: str) -> tuple[Complaint, ...]:
    """Everything that is wrong; `refusal` is what is said if none of it can be named."""
    spot = Spot(node=root, path=(), key=root.place)
    found = tuple(_misfits(spot, inspect.type_info(kind)))
    if not found and refusal and not _is_broken(root):
        return (_at(spot, sentence(refusal)),)
    return found


def _is_broken(node: Node) -> bool:
    """Whether something in it is wrong that is told already."""
    if isinstance(node, Map):
        return any(_is_broken(entry.value) for entry in node.entries)
    if isinstance(node, Sequence):
        return any(map(_is_broken, node.items))
    return isinstance(node, Broken)


def _misfits(spot: Spot, kind: inspect.Type) -> Iterator[Complaint]:
    node = spot.node
    members = tuple(_members(kind))
    plainly = tuple(map(_bare, members))
    if isinstance(node, Broken) or any(isinstance(each, inspect.AnyType) for each in plainly):
        return
    if isinstance(node, Map):
        inside = next((each for each in plainly if isinstance(each, MAPPINGS)), None)
        if inside is not None:
            yield from _in_mapping(spot, node, inside)
            return
    if isinstance(node, Sequence):
        listed = next((each for each in plainly if isinstance(each, LISTS)), None)
        if listed is not None:
            yield from _in_list(spot, node, listed)
            return
    wants = [_want(node, each) for each in members]
    if all(wants):
        nouns = dict.fromkeys(want.noun for want in wants if want)
        if len(nouns) > 1:
            nouns.pop(NULL, None)  # it says nothing, so nothing is said of it
        message = f"must be {either(nouns)}, not {_what(node)}"
        yield _at(spot, message, _advice(node, [want for want in wants if want]))


def _members(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The kinds of a union, or the one that it is."""
    bare = _bare(kind)
    if isinstance(bare, inspect.UnionType):
        for each in bare.types:
            yield from _members(each)
    else:
        yield kind


def _bare(kind: inspect.Type) -> inspect.Type:
    return _bare(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _in_list(spot: Spot, node: Sequence, kind: Any) -> Iterator[Complaint]:
    size, least, most = len(node.items), kind.min_length, kind.max_length
    if least is not None and size < least:
        advice = "remove it, or name what is meant" if size == 0 else ""
        what = "an empty list" if size == 0 else f"of {size}"
        yield _at(spot, f"must be a list of at least {least}, not {what}", advice)
    if most is not None and size > most:
        yield _at(spot, f"must be a list of at most {most}, not of {size}")
    for index, item in enumerate(node.items):
        yield from _misfits(_inner(spot, item, index), kind.item_type)


def _in_mapping(spot: Spot, node: Map, kind: Any) -> Iterator[Complaint]:
    if isinstance(kind, inspect.StructType):
        yield from _in_struct(spot, node, kind)
        return
    size, least, most = len(node.entries), kind.min_length, kind.max_length
    if least is not None and size < least:
        yield _at(spot, f"must be a mapping of at least {least}, not of {size}")
    if most is not None and size > most:
        yield _at(spot, f"must be a mapping of at most {most}, not of {size}")
    for entry in node.entries:
        inner = _inner(spot, entry.value, entry.key, entry.place)
        key = Scalar(place=entry.place, value=entry.key, text=entry.key)
        want = _want(key, kind.key_type)
        if want:
            message = f"the key must be {want.noun}"
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
        found = _misfits(inner, known.type) if known else _unknown(inner, entry.key, kind)
        for each in found:
            wrong = True
            yield each
    if not wrong and not _is_broken(node):
        yield from _of_rules(spot, node, kind)


def _missing(spot: Spot, field: str) -> Complaint:
    message = f"{brief(field)} is missing"
    return Complaint(path=spot.path, place=spot.key, message=message, advice="add it", missing=True)


def _unknown(spot: Spot, key: str, kind: inspect.StructType) -> Iterator[Complaint]:
    if kind.forbid_unknown_fields:
        known = [field.encode_name for field in kind.fields]
        advice = did_you_mean(key, known, f"known here: {', '.join(known)}" if known else "")
        message = "is not a key that is known here"
        yield Complaint(path=spot.path, place=spot.key, message=message, advice=advice)


def _of_rules(spot: Spot, node: Map, kind: inspect.StructType) -> Iterator[Complaint]:
    """What `__post_init__` refuses, where every field is of its type."""
    try:
        convert(plain(node), kind.cls)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, TypeError):
            raise cause from None  # a fault of its own
        if isinstance(cause, ValueError):
            for each in (cause, *getattr(cause, "more", ())):
                inner = follow(node, each.path if isinstance(each, FieldError) else ())
                message, _, advice = str(each).partition("; ")
                at = Spot(path=(*spot.path, *inner.path), node=inner.node, key=inner.key)
                yield _at(at, sentence(message), sentence(advice))


def _want(node: Node, kind: inspect.Type) -> Want | None:
    """What is asked for; None if the node is that. The title of a `Meta` says it in its words."""
    title = ""
    while isinstance(kind, inspect.Metadata):
        title = title or (kind.extra_json_schema or {}).get("title", "")
        kind = kind.type
    want = _want_of(node.value if isinstance(node, Scalar) else node, kind)
    if want is not None and isinstance(kind, inspect.StrType) and isinstance(node, Scalar):
        as_text = not isinstance(node.value, str) and _text(node.text, kind) is None
        want = msgspec.structs.replace(want, text=as_text)
    return msgspec.structs.replace(want, noun=title) if want and title else want


def _want_of(value: object, kind: Any) -> Want | None:
    if isinstance(kind, inspect.NoneType):
        return None if value is None else Want(noun=NULL)
    if isinstance(kind, inspect.BoolType):
        return None if isinstance(value, bool) else Want(noun="true or false")
    if isinstance(kind, inspect.IntType):
        return _number(value, kind) if type(value) is int else Want(noun="a whole number")
    if isinstance(kind, inspect.FloatType):
        return _number(value, kind) if type(value) in (int, float) else Want(noun="a number")
    if isinstance(kind, inspect.StrType):
        return _text(value, kind) if isinstance(value, str) else Want(noun="text")
    if isinstance(kind, inspect.LiteralType):
        return _choice(value, kind.values)
    if isinstance(kind, inspect.EnumType):
        return _choice(value, [each.value for each in kind.cls])
    if isinstance(kind, inspect.DateType):
        return None if _is_date(value) else Want(noun="a date such as 2026-12-31")
    if isinstance(kind, LISTS):
        return Want(noun="a list")
    return Want(noun="a mapping") if isinstance(kind, MAPPINGS) else None


def _number(value: Any, kind: Any) -> Want | None:
    if not isfinite(value):
        return Want(noun="a finite number")
    for name, (words, holds) in BOUNDS.items():
        bound = getattr(kind, name)
        if bound is not None and not holds(value, bound):
            return Want(noun=f"{words} {bound:g}")
    return None


def _text(value: str, kind: inspect.StrType) -> Want | None:
    if kind.min_length is not None and len(value) < kind.min_length:
        return Want(noun=f"text of at least {kind.min_length} characters")
    if kind.max_length is not None and len(value) > kind.max_length:
        return Want(noun=f"text of at most {kind.max_length} characters")
    if kind.pattern is None:
        return None
    found = re.search(kind.pattern, value)
    if found and not (kind.pattern.endswith("$") and found.end() < len(value)):
        return None
    return Want(noun=f"text that matches {kind.pattern}")


def _choice(value: object, known: Iterable[object]) -> Want | None:
    if any(type(each) is type(value) and each == value for each in known):
        return None
    words = tuple(_word(each) for each in known)
    noun = f"one of {', '.join(words)}" if len(words) > 1 else words[0]
    return Want(noun=noun, choices=words)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_date(value: object) -> bool:
    try:
        convert(value, date)
    except msgspec.ValidationError:
        return False
    return True


def _what(node: Node) -> str:
    if isinstance(node, Scalar):
        return node.text if _is_number(node) else quoted(node.value)
    return "a list" if isinstance(node, Sequence) else "a mapping"


def _is_number(node: Scalar) -> bool:
    return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)


def _advice(node: Node, wants: list[Want]) -> str:
    if not isinstance(node, Scalar):
        return ""
    text = any(want.text for want in wants)
    if text and _is_number(node) and str(node.value) != node.text:
        number = f"{node.text} without quotes is the number {node.value}"
        return f'{number}; write "{node.text}"'
    if text and node.value is not None:
        return f'write "{brief(node.text)}"'
    return _advice_for_text(node.value, wants) if isinstance(node.value, str) else ""


def _advice_for_text(text: str, wants: list[Want]) -> str:
    for want in wants:
        if want.choices and (near := did_you_mean(text, want.choices)):
            return near
        if want.noun.endswith("number") and _looks_like_number(text):
            return f"write {text} without quotes"
        if want.noun == "true or false" and text.lower() in ("true", "false"):
            return f"write {text.lower()} without quotes"
    return ""


def _looks_like_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and text.isascii()
