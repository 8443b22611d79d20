"""Saved runs of checks as data: decoded, and brought to this schema from an earlier one. Pure."""

from typing import TypeVar

import msgspec

from nodevet.base import typed
from nodevet.base.upgrades import Document, Upgrades, can_upgrade, upgrade
from nodevet.model import RUN_SCHEMA, Run
from nodevet.sheet.errors import ReportError

UPGRADES: Upgrades = {}

Decoded = TypeVar("Decoded")


class Schema(msgspec.Struct, frozen=True):
    """The fields that a saved run has in every schema."""

    schema: int


def decode(text: str | bytes, kind: type[Decoded], what: str) -> Decoded:
    """JSON as `kind`. Raises ReportError; `what` names it there."""
    try:
        return typed.decode(text, kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ReportError(f"not a saved {what}: {error}") from error


def is_current(schema: int, upgrades: Upgrades = UPGRADES) -> bool:
    """Whether a run has this schema. Raises ReportError for a schema that cannot be converted."""
    if not can_upgrade(schema, RUN_SCHEMA, upgrades):
        way = "a newer nodevet" if schema > RUN_SCHEMA else "the version of nodevet that wrote it"
        raise ReportError(
            f"the saved run has schema {schema}, this nodevet reads {RUN_SCHEMA}; "
            f"read it with {way}, or do without it"
        )
    return schema == RUN_SCHEMA


def upgraded(document: Document, upgrades: Upgrades = UPGRADES) -> Run:
    """A run of an earlier schema, step by step. Raises ReportError if it is none."""
    schema = int(document["schema"])
    try:
        document = upgrade(document, schema, RUN_SCHEMA, upgrades)
        return typed.convert({**document, "schema": RUN_SCHEMA}, Run)
    except (LookupError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise ReportError(f"not a saved run of schema {schema}: {error}") from error
