"""A tree as a type; where it cannot be one, everything that is wrong, each at its position.

msgspec judges. Only of what it refuses is the tree walked along the type, to say why.
"""

from collections.abc import Iterator
from math import isfinite
from typing import TypeVar

import msgspec

from nodevet.base.problems import Problem
from nodevet.base.typed import convert
from nodevet.document.complaint import Complaint
from nodevet.document.tree import Broken, Mapping, Node, Scalar, Sequence, dotted, plain

Typed = TypeVar("Typed")


class MisfitError(Exception):
    """A tree that cannot be the type. No complaint where all that is wrong is told already."""

    def __init__(self, complaints: tuple[Complaint, ...]) -> None:
        self.complaints = complaints
        super().__init__("\n".join(each.message for each in complaints))


def typed(root: Node, kind: type[Typed]) -> Typed:
    """The tree as this type. Raises MisfitError, and what a `__post_init__` fails with."""
    try:
        value = convert(plain(root), kind)
    except msgspec.ValidationError as error:
        from nodevet.document.misfits import misfits  # a run without a slip does not pay for it

        raise MisfitError(misfits(root, kind, str(error))) from error
    if any(map(_odd, _scalars(root))):
        from nodevet.document.misfits import misfits

        if found := misfits(root, kind, ""):
            raise MisfitError(found)
    return value


def fitted(root: Node, kind: type[Typed], shown: str) -> tuple[Typed | None, tuple[Problem, ...]]:
    """The tree of a file as this type, or None and what is wrong with it; `shown`: the file."""
    try:
        return typed(root, kind), ()
    except MisfitError as error:
        return None, tuple(
            Problem(each.place.within(shown), dotted(each.path), each.message, each.advice)
            for each in error.complaints
        )


def _odd(value: object) -> bool:
    """Whether msgspec lets it pass where a limit forbids it: inf, and a newline before `$`."""
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
