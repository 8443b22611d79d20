"""Upgrade documents of an earlier schema to the current one, step by step. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

Document = dict[str, Any]
"""A stored document, as JSON data in the shape of its schema."""

Upgrades = Mapping[int, Callable[[Document], Document]]
"""By N, the step from schema N to N + 1. Each new schema adds the step from its predecessor; a
schema without steps to the current one is refused."""


def can_upgrade(schema: int, current: int, upgrades: Upgrades) -> bool:
    """Whether steps lead from this schema to the current one, or none are needed."""
    return schema <= current and all(step in upgrades for step in range(schema, current))


def upgrade(document: Document, schema: int, current: int, upgrades: Upgrades) -> Document:
    """A document of this schema in the shape of the current one. Raises what its steps raise."""
    for step in range(schema, current):
        document = upgrades[step](document)
    return document
