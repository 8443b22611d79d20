"""A kind of file that people write for one feature, as `nodevet lint` looks at it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from nodevet.base.problems import Problem
from nodevet.document.kinds import DocumentKind


class Lintable(NamedTuple):
    """Each feature lists its kinds in its linting.py, as `LINTED`."""

    name: str  # as lint says it: workload
    kind: DocumentKind
    look: Callable[[Path], tuple[Sequence[str], Sequence[Problem]]]
    """The files that were looked at, and all that is wrong with them."""
    folder: str = ""  # of a project, beside its top: workloads
    names: Sequence[str] = ()  # of files that are of this kind whatever they hold
