"""Converts plans, journals and results from earlier schemas. Pure."""

from nodevet.base.upgrades import Document, Upgrades, can_upgrade, upgrade

PLAN: Upgrades = {}
JOURNAL: Upgrades = {}
RESULT: Upgrades = {}


class UpgradeError(Exception):
    """nodevet cannot convert a schema; the message says what to do."""


def check(schema: int, current: int, upgrades: Upgrades) -> None:
    """Raises UpgradeError if `upgrades` do not lead from this schema to the current one."""
    if can_upgrade(schema, current, upgrades):
        return
    not_converted = "" if schema > current else " and cannot convert it"
    raise UpgradeError(
        f"schema {schema}, this nodevet reads {current}{not_converted}; "
        "use the nodevet that wrote it"
    )


def upgraded(document: Document, schema: int, current: int, upgrades: Upgrades) -> Document:
    """A document of an earlier schema, converted to the current one. Raises UpgradeError."""
    check(schema, current, upgrades)
    try:
        return upgrade(document, schema, current, upgrades)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UpgradeError(f"not a valid document of schema {schema}: {error}") from error
