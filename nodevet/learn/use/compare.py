"""Compare: hosts held against one another."""

from typing import Any

import msgspec

from nodevet.checking.catalog import Catalog
from nodevet.learn.compare import Comparison, compare
from nodevet.sheet.text import nodeset
from nodevet.vet.use.nodes import Nodes


def compared(nodes: Nodes, catalog: Catalog) -> Comparison:
    """Each group of like hosts. Raises CatalogError for a check that is broken."""
    return compare(nodes.evidence, catalog, nodes.lost)


def as_document(comparison: Comparison) -> dict[str, Any]:
    """Everything, and the names of the outliers."""
    return {**msgspec.to_builtins(comparison), "outliers": list(comparison.outliers)}


def as_nodeset(comparison: Comparison) -> str:
    """The outliers for `srun --exclude`; an empty line if there are none."""
    return nodeset(comparison.outliers)
