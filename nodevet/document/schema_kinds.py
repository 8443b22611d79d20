"""The kinds of documents that have a JSON Schema. A schema is made when someone asks for it."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from nodevet.base.features import answers
from nodevet.base.project import Project

Document = dict[str, Any]


class SchemaKind(NamedTuple):
    """A kind of document that `nodevet schema` knows: what it is, and how its schema is made."""

    about: str
    schema: Callable[[Project], Document]


@cache
def kinds() -> Mapping[str, SchemaKind]:
    """Every kind of document by its name: those that each feature lists in its schemas.py."""
    found: dict[str, SchemaKind] = {}
    for feature in answers("schemas"):
        found |= feature.SCHEMAS
    return found
