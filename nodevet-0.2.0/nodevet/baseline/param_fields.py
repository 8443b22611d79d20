"""Describe the parameters of checks: fields, forms, defaults, examples."""

import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

from nodevet.base.problems import or_list
from nodevet.baseline.notes import field_notes
from nodevet.model import CheckParams

NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false"}


class ParamField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a check's Params."""

    name: str  # empty: any name
    form: str  # `8, 16 or max`, `list of text`
    default: str = ""  # as YAML; empty: none
    required: bool = False
    bare: bool = False  # a plain value fills it
    note: str = ""


def examples(params: type[CheckParams]) -> list[str]:
    """Examples of settings in a baseline, one line each, from the docstring of the Params."""
    return re.findall(r"`([^`]+)`", params.__doc__ or "")


def param_fields(params: type[CheckParams]) -> Iterator[ParamField]:
    """The fields, in order."""
    notes = field_notes(params)
    for field in fields(params):
        default = field.default
        no_default = default is msgspec.NODEFAULT or default is None
        if field.name == params.whole:
            yield ParamField(name="", form=_form(get_args(field.type)[1]))
        else:
            yield ParamField(
                name=field.name,
                form=_form(field.type) + (", null: off" if has_off(params, field.name) else ""),
                default="" if no_default else as_yaml(default),
                required=field.required,
                bare=params.bare == field.name,
                note=notes.get(field.name, ""),
            )


def field_of(params: type[CheckParams], name: str) -> msgspec.structs.FieldInfo | None:
    """A field by its name; None if there is none, or if names come from the node."""
    if params.whole:
        return None
    return next((field for field in fields(params) if field.name == name), None)


def has_off(params: type[CheckParams], name: str) -> bool:
    """Whether null is a value of a field and not its default: no limit."""
    field = field_of(params, name)
    if field is None or field.required or field.default is None:
        return False
    return type(None) in get_args(field.type)


def as_yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (tuple, frozenset)):
        return f"[{', '.join(map(as_yaml, value))}]"
    return str(value)


def _form(annotation: Any) -> str:
    """A type in words."""
    return or_list(_forms(annotation))


def _forms(annotation: Any) -> list[str]:
    """The forms of a value, one word or phrase each."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _forms(inner[0])
    if origin is Literal:
        return [as_yaml(value) for value in inner]
    if origin in (Union, types.UnionType):
        return [word for member in inner if member is not type(None) for word in _forms(member)]
    if origin in (tuple, list, frozenset, set):
        return [f"list of {_form(inner[0])}"]
    if origin in (dict, Mapping):
        return [f"map of {_form(inner[0])} to {_form(inner[1])}"]
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [f"a map of {', '.join(f'`{name}`' for name in annotation.__struct_fields__)}"]
    return [NAMES.get(annotation) or str(getattr(annotation, "__name__", "a value"))]
