"""Load baselines, and say where their values come from."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nodevet.base.problems import Problem
from nodevet.baseline.files import Parse, parse
from nodevet.baseline.merge import Statement
from nodevet.baseline.resolve import Resolved, resolve
from nodevet.checking import params
from nodevet.checking.catalog import Catalog
from nodevet.model import Check, Value
from nodevet.model.baseline import Baseline


class BaselineErrors(Exception):  # noqa: N818  (it carries many)
    """The problems of the requested baselines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def load(
    names: Sequence[str],
    *,
    folders: Sequence[Path] = (),
    catalog: Catalog,
    parse: Parse = parse,
) -> tuple[Baseline, ...]:
    """The named baselines, each once. Raises BaselineErrors with every problem.

    A name is a path (it contains / or ends in .yaml or .yml), or the stem of a file in one of
    `folders` or of a shipped baseline. `parse`: what makes trees of their texts.
    """
    loaded = load_resolved(names, folders=folders, catalog=catalog, parse=parse)
    return tuple(resolved.baseline for resolved in loaded)


def load_resolved(
    names: Sequence[str],
    *,
    folders: Sequence[Path] = (),
    catalog: Catalog,
    parse: Parse = parse,
) -> tuple[Resolved, ...]:
    """Like `load`, with the files and statements behind each baseline."""
    resolution = resolve(names, folders=folders, catalog=catalog, parse=parse)
    if resolution.problems:
        raise BaselineErrors(resolution.problems)
    return resolution.resolved


def provenance(resolved: Resolved, check: str) -> tuple[Statement, ...]:
    """All statements of a baseline's files about a check, in the order of their effect."""
    return tuple(statement for statement in resolved.statements if statement.check == check)


def params_of(check: Check, fields: Value) -> Any | None:
    """The check's Params from these fields of plain data; None if they are not valid."""
    try:
        return params.params_of(check.params, fields)
    except msgspec.ValidationError:
        return None
