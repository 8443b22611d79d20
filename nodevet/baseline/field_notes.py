"""What stands below each field of a check's parameters: the text for editors and pages.

pydantic reads it for every class that is defined (`use_attribute_docstrings`), and finds and parses
the source for that; a run of checks has no use for it.
"""

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise
from textwrap import dedent

import pydantic


def field_notes(model: type[pydantic.BaseModel]) -> Mapping[str, str]:
    """The text of each field that has one: its `description`, else the docstring below it."""
    below: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, pydantic.BaseModel) and each is not pydantic.BaseModel:
            below.update(_docstrings(each))
    told = {
        name: field.description or below.get(name) for name, field in model.model_fields.items()
    }
    return {name: text for name, text in told.items() if text}


def _docstrings(model: type) -> Mapping[str, str]:
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(model))).body
    except (OSError, TypeError, SyntaxError):  # made without a file
        return {}
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(note.value.value)
        for field, note in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(note, ast.Expr)
        and isinstance(note.value, ast.Constant)
        and isinstance(note.value.value, str)
    }
