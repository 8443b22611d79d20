"""Load baselines from YAML: positions, `extends`, waivers, and the choice of a node's baseline.

`load` raises BaselineErrors with every problem of every file at once.
"""

from nodevet.base.problems import Problem
from nodevet.baseline.choose import choose, none_fits
from nodevet.baseline.library import available
from nodevet.baseline.lint import lint
from nodevet.baseline.load import BaselineErrors, load, load_resolved, params_of, provenance
from nodevet.baseline.merge import Statement
from nodevet.baseline.resolve import Resolved

__all__ = [
    "BaselineErrors",
    "Problem",
    "Resolved",
    "Statement",
    "available",
    "choose",
    "lint",
    "load",
    "load_resolved",
    "none_fits",
    "params_of",
    "provenance",
]
