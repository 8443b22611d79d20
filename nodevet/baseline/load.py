"""Loading baselines, and asking where their values come from."""

from collections.abc import Sequence
from pathlib import Path

from nodevet.baseline.errors import BaselineErrors
from nodevet.baseline.merge import Statement
from nodevet.baseline.resolve import Resolved, resolve
from nodevet.checking.catalog import Catalog
from nodevet.model import Baseline


def load(
    names: Sequence[str], *, folders: Sequence[Path] = (), catalog: Catalog
) -> tuple[Baseline, ...]:
    """The baselines that are named, each once. Raises BaselineErrors with all that is wrong.

    A name is a path (it contains / or ends in .yaml or .yml), or the stem of a file in
    one of `folders`, or else that of a shipped baseline.
    """
    return tuple(one.baseline for one in load_resolved(names, folders=folders, catalog=catalog))


def load_resolved(
    names: Sequence[str], *, folders: Sequence[Path] = (), catalog: Catalog
) -> tuple[Resolved, ...]:
    """Like `load`, with the files and statements behind each baseline."""
    resolution = resolve(names, folders=folders, catalog=catalog)
    if resolution.problems:
        raise BaselineErrors(resolution.problems)
    return resolution.resolved


def provenance(resolved: Resolved, check: str) -> tuple[Statement, ...]:
    """Everything that the files of a baseline say about a check, in the order it is applied."""
    return tuple(statement for statement in resolved.statements if statement.check == check)
