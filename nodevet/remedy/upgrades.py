"""Plans, journals and results of an earlier schema, brought to this one step by step. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

Document = dict[str, Any]
"""A plan, a record of a journal, or a result, as plain JSON data in the shape of its schema."""

Upgrades = Mapping[int, Callable[[Document], Document]]
"""A document of schema N as one of schema N + 1, by N. A new schema brings the step from the one
before; a schema from which no steps lead here is refused."""

PLAN: Upgrades = {}
JOURNAL: Upgrades = {}
RESULT: Upgrades = {}


class UpgradeError(Exception):
    """A schema that cannot be brought to this one; the message says what to do."""


def check(schema: int, current: int, upgrades: Upgrades) -> None:
    """Raises UpgradeError if no steps lead from this schema to the current one."""
    if schema > current:
        raise UpgradeError(
            f"schema {schema}, this nodevet reads {current}; use the nodevet that wrote it"
        )
    if any(step not in upgrades for step in range(schema, current)):
        raise UpgradeError(
            f"schema {schema}, this nodevet reads {current} and cannot convert it; "
            "use the nodevet that wrote it"
        )


def upgraded(document: Document, schema: int, current: int, upgrades: Upgrades) -> Document:
    """A document of this schema in the shape of the current one. Raises UpgradeError."""
    check(schema, current, upgrades)
    try:
        for step in range(schema, current):
            document = upgrades[step](document)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UpgradeError(f"not a valid document of schema {schema}: {error}") from error
    return document
