"""Convert a tree to a type, or report every problem with its position.

msgspec judges. Only if it refuses the tree, nodevet walks the tree along the type to say why.
"""

from collections.abc import Iterator
from math import isfinite
from typing import TypeVar

import msgspec

from nodevet.base.problems import Problem
from nodevet.base.typed import convert
from nodevet.document.tree import Broken, Complaint, Mapping, Node, Scalar, Sequence, plain

Typed = TypeVar("Typed")


class MisfitError(Exception):
    """A tree that is not of the type. No complaints if all problems are reported already."""

    def __init__(self, complaints: tuple[Complaint, ...]) -> None:
        self.complaints = complaints
        super().__init__("\n".join(complaint.message for complaint in complaints))


def typed(root: Node, kind: type[Typed]) -> Typed:
    """The tree as this type. Raises MisfitError, and what a `__post_init__` fails with."""
    try:
        value = convert(plain(root), kind)
    except msgspec.ValidationError as error:
        from nodevet.document.misfits import misfits  # a run without mistakes does not pay for it

        raise MisfitError(misfits(root, kind, str(error))) from error
    if any(map(_slips_past_msgspec, _scalars(root))):
        from nodevet.document.misfits import misfits

        if complaints := misfits(root, kind, ""):
            raise MisfitError(complaints)
    return value


def typed_or_problems(
    root: Node, kind: type[Typed], file: str
) -> tuple[Typed | None, tuple[Problem, ...]]:
    """The tree of a file as this type, or None and its problems."""
    try:
        return typed(root, kind), ()
    except MisfitError as error:
        return None, tuple(complaint.problem(file) for complaint in error.complaints)


def _slips_past_msgspec(value: object) -> bool:
    """Whether msgspec accepts a value that a limit forbids: inf, or a newline before `$`."""
    if isinstance(value, str):
        return value.endswith("\n")
    return isinstance(value, float) and not isfinite(value)


def _scalars(node: Node) -> Iterator[object]:
    if isinstance(node, Scalar):
        yield node.value
    elif isinstance(node, Broken):
        return
    elif isinstance(node, Mapping):
        for entry in node.entries:
            yield entry.key
            yield from _scalars(entry.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _scalars(item)
