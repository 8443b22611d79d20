"""Read a YAML file that people write as one type, and report all its problems with their lines."""

from pathlib import Path
from typing import TypeVar

from nodevet.base.problems import Problem
from nodevet.document.parse import parse
from nodevet.document.text import UnreadableError, read
from nodevet.document.typed import typed_or_problems

Typed = TypeVar("Typed")


def read_typed(path: Path, kind: type[Typed]) -> tuple[Typed | None, tuple[Problem, ...]]:
    """The file as this type (None if it is not of it, or cannot be read), and all its problems."""
    try:
        source = read(path)
    except UnreadableError as error:
        return None, (error.problem,)
    tree = parse(source)
    if tree.root is None:
        return None, tree.problems
    value, problems = typed_or_problems(tree.root, kind, source.shown)
    return value, (*tree.problems, *problems)
