"""Documents of an earlier schema, brought to the current one step by step. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

Document = dict[str, Any]
"""What was stored, as plain JSON data in the shape of its schema."""

Upgrades = Mapping[int, Callable[[Document], Document]]
"""A document of schema N as one of schema N + 1, by N. A new schema brings the step from the one
before; a schema from which no steps lead to the current one is refused."""


def leads(schema: int, current: int, upgrades: Upgrades) -> bool:
    """Whether steps lead from this schema to the current one, or none are needed."""
    return schema <= current and all(step in upgrades for step in range(schema, current))


def stepped(document: Document, schema: int, current: int, upgrades: Upgrades) -> Document:
    """A document of this schema in the shape of the current one. Raises what its steps raise."""
    for step in range(schema, current):
        document = upgrades[step](document)
    return document
