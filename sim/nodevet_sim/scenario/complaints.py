"""pydantic's errors in our words, each at the position of its node."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import pydantic
from pydantic_core import ErrorDetails

from nodevet.base.printable import brief, sentence
from nodevet.base.problems import did_you_mean, or_list, quoted
from nodevet.document.tree import Broken, Complaint, Node, Scalar, Sequence, Spot, follow
from nodevet.document.tree import Mapping as Map

NOUNS = {  # pydantic's error type: what is expected
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "none_required": "null",
    "date_type": "a date such as 2026-12-31",
    "date_parsing": "a date such as 2026-12-31",
    "date_from_datetime_parsing": "a date such as 2026-12-31",
    "date_from_datetime_inexact": "a date such as 2026-12-31",
}
BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "multiple_of": ("multiple_of", "a multiple of"),
}

IN_MAPPINGS = ("missing", "extra_forbidden", "value_error", "assertion_error")


def complaints(
    error: pydantic.ValidationError, root: Node, fields: Mapping[str, Iterable[str]]
) -> Iterator[Complaint]:
    """What is wrong, node by node. `fields` names the known keys of each model in the tree.

    Empty only if the sole problem is a Broken node, which is already reported.
    """
    groups: dict[tuple[str | int, ...], tuple[Spot, list[ErrorDetails]]] = {}
    for detail in error.errors(include_url=False):
        location = detail["loc"][:-1] if detail["type"] == "missing" else detail["loc"]
        spot = follow(root, location)
        groups.setdefault(spot.path, (spot, []))[1].append(detail)
    silent = True
    for spot, details in groups.values():
        if isinstance(spot.node, Map):
            depth = len(spot.path)
            inner = any(len(path) > depth and path[:depth] == spot.path for path in groups)
            about = _about_mappings(details, inner)
        else:
            about = details
        if isinstance(spot.node, Broken):
            silent = False
            continue
        for complaint in _group(spot, about, fields):
            silent = False
            yield complaint
    if silent:
        yield Complaint(path=(), place=root.place, message=sentence(str(error)))


def _about_mappings(details: list[ErrorDetails], inner: bool) -> list[ErrorDetails]:
    """If a mapping meets a union, only the error of the union's mapping member is useful."""
    useful = [detail for detail in details if detail["type"] in IN_MAPPINGS]
    return useful if useful or inner else details


def known_keys(model: type[pydantic.BaseModel], path: str = "") -> dict[str, tuple[str, ...]]:
    """The fields of a model and of the models inside it, by their dotted path from it."""
    keys = {path: tuple(model.model_fields)}
    for name, field in model.model_fields.items():
        for inner in _models(field.annotation):
            keys.update(known_keys(inner, f"{path}.{name}" if path else name))
    return keys


def _models(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _group(
    spot: Spot, details: list[ErrorDetails], fields: Mapping[str, Iterable[str]]
) -> Iterator[Complaint]:
    """The errors about one node: several members of a union become one `must be a or b`."""
    nouns: dict[str, None] = {}
    for detail in details:
        kind = detail["type"]
        if detail["loc"] and detail["loc"][-1] == "[key]":
            yield Complaint(
                path=spot.path, place=spot.key, message=f"the key must be {_noun(detail)}"
            )
        elif kind == "missing":
            yield _missing(spot, str(detail["loc"][-1]))
        elif kind == "extra_forbidden":
            yield _unknown_key(spot, details, fields)
        elif kind in ("value_error", "assertion_error"):
            words = str(detail.get("ctx", {}).get("error", detail["msg"]))
            message, _, advice = words.partition("; ")
            yield _complaint(spot, sentence(message), sentence(advice))
        else:
            nouns[_noun(detail)] = None
    if nouns:
        yield _complaint(
            spot, f"must be {or_list(nouns)}, not {_node_text(spot.node)}", _advice(spot, nouns)
        )


def _complaint(spot: Spot, message: str, advice: str) -> Complaint:
    return Complaint(path=spot.path, place=spot.node.place, message=message, advice=advice)


def _missing(spot: Spot, field: str) -> Complaint:
    return Complaint(
        path=spot.path,
        place=spot.key,
        message=f"{brief(field)} is missing",
        advice="add it",
        missing=True,
    )


def _unknown_key(
    spot: Spot, details: list[ErrorDetails], fields: Mapping[str, Iterable[str]]
) -> Complaint:
    *parents, key = spot.path
    names = [str(step) for step in parents if isinstance(step, str)]
    while names and ".".join(names) not in fields:
        names.pop()  # a mapping with free keys: what it holds is known under its own name
    known = tuple(fields.get(".".join(names), ())) if names or not parents else ()
    advice = did_you_mean(str(key), known, f"known here: {', '.join(known)}" if known else "")
    return Complaint(
        path=spot.path, place=spot.key, message="is not a known key here", advice=advice
    )


def _noun(detail: ErrorDetails) -> str:
    """The expectation of the type, the bound or the list of choices."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in NOUNS:
        return NOUNS[kind]
    if kind in BOUNDS:
        name, words = BOUNDS[kind]
        return f"{words} {context[name]:g}"
    if kind in ("literal_error", "enum"):
        return f"one of {_choices(context['expected'])}"
    if kind == "string_pattern_mismatch":
        return f"text that matches {context['pattern']}"
    if kind == "string_too_short":
        return f"text of at least {context['min_length']} characters"
    if kind == "too_short":
        return f"a list of at least {context['min_length']}"
    if kind == "too_long":
        return f"a list of at most {context['max_length']}"
    if kind == "finite_number":
        return "a finite number"
    message = detail["msg"]
    return message[:1].lower() + message[1:]


def _choices(expected: str) -> str:
    """pydantic's `'info', 'warning' or 'critical'` as `info, warning, critical`."""
    return expected.replace(" or ", ", ").replace("'", "")


def _node_text(node: Node) -> str:
    if isinstance(node, Scalar):
        return node.text if _is_number(node) else quoted(node.value)
    return "a list" if isinstance(node, Sequence) else "a mapping"


def _is_number(node: Scalar) -> bool:
    return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)


def _advice(spot: Spot, nouns: Mapping[str, None]) -> str:
    node = spot.node
    if not isinstance(node, Scalar):
        return ""
    if "text" in nouns and _is_number(node) and str(node.value) != node.text:
        number = f"{node.text} without quotes is the number {node.value}"
        return f'{number}; write "{node.text}"'
    if "text" in nouns and node.value is not None:
        return f'write "{brief(node.text)}"'
    if isinstance(node.value, str):
        return _advice_for_text(node.value, nouns)
    return ""


def _advice_for_text(text: str, nouns: Mapping[str, None]) -> str:
    for noun in nouns:
        if noun.startswith("one of "):
            near = did_you_mean(text, noun.removeprefix("one of ").split(", "))
            if near:
                return near
        if noun.endswith("number") and _looks_like_number(text):
            return f"write {text} without quotes"
        if noun == "true or false" and text.lower() in ("true", "false"):
            return f"write {text.lower()} without quotes"
    return ""


def _looks_like_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and text.isascii()
