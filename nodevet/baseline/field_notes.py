"""What stands below each field of a check's parameters: the text for editors and pages.

It is read from the source, where it is shown; a run of checks has no use for it.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

import msgspec


def field_notes(model: type[msgspec.Struct]) -> Mapping[str, str]:
    """The docstring below each field that has one."""
    below: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            below.update(_docstrings(each))
    return {name: below[name] for name in model.__struct_fields__ if below.get(name)}


def _docstrings(model: type) -> Mapping[str, str]:
    try:
        classes = _classes(inspect.getsource(sys.modules[model.__module__]))
    except (KeyError, OSError, TypeError, SyntaxError):  # made without a file
        return {}
    body = classes[model.__qualname__].body if model.__qualname__ in classes else []
    return {
        field.target.id: inspect.cleandoc(note.value.value)
        for field, note in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(note, ast.Expr)
        and isinstance(note.value, ast.Constant)
        and isinstance(note.value.value, str)
    }


@lru_cache(maxsize=8)  # of the modules that classes of one check derive from
def _classes(source: str) -> Mapping[str, ast.ClassDef]:
    return {each.name: each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}
