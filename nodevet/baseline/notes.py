"""Notes for editors and pages: the docstring below a field, the comments of a YAML line."""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

import msgspec


def field_notes(model: type[msgspec.Struct]) -> Mapping[str, str]:
    """The docstring below each field that has one, by field. Read from the source."""
    notes: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            notes.update(_docstrings(base))
    return {name: notes[name] for name in model.__struct_fields__ if notes.get(name)}


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


@lru_cache(maxsize=8)  # the modules of the base classes of one check's Params
def _classes(source: str) -> Mapping[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def remarks(text: str) -> Mapping[int, str]:
    """The comments of each YAML line with content, directly above and behind it, by line from 1.

    >>> remarks("# quiet\\na: 1 # at most\\nb: 'x # y'\\n")
    {2: 'quiet at most'}
    """
    import yaml  # merging baselines uses only the other notes

    ends: dict[int, int] = {}  # by line, the end of its content
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        for inner in range(token.start_mark.line, token.end_mark.line):
            if isinstance(token, yaml.ScalarToken):  # a text of several lines
                ends[inner] = len(text)
        mark = token.end_mark
        ends[mark.line] = max(mark.column, ends.get(mark.line, 0))
    comments: dict[int, str] = {}
    above: list[str] = []
    for number, line in enumerate(text.splitlines()):
        end = ends.get(number, 0)
        _, behind, comment = line[end:].partition("#")
        if end == 0 and behind and not line[: line.index("#")].strip():
            above.append(comment.strip())
            continue
        comment_text = " ".join(filter(None, (*above, comment.strip() if behind else "")))
        if comment_text and line.strip():
            comments[number + 1] = comment_text
        above = []
    return comments
