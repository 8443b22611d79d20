"""The kinds of documents that have a JSON Schema. A schema is made only when it is needed."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from nodevet.base.features import feature_modules
from nodevet.base.project import Project

Document = dict[str, Any]


class SchemaKind(NamedTuple):
    """A kind of document of `nodevet schema`: its description, the function for its schema, and the
    commands whose JSON it is."""

    about: str
    schema: Callable[[Project], Document]
    commands: tuple[str, ...] = ()


@cache
def kinds() -> Mapping[str, SchemaKind]:
    """Every kind of document by its name, as features list them in schemas.py."""
    schemas: dict[str, SchemaKind] = {}
    for feature in feature_modules("schemas"):
        schemas |= feature.SCHEMAS
    return schemas
