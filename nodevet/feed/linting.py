"""Workload files, for `nodevet lint`."""

from collections.abc import Sequence
from pathlib import Path

from nodevet.base.problems import Problem
from nodevet.document.kinds import DocumentKind
from nodevet.document.lintable import Lintable
from nodevet.document.text import shown
from nodevet.feed.workload_file import opened


def _look(path: Path) -> tuple[Sequence[str], Sequence[Problem]]:
    return [shown(path)], opened(path)[1]


LINTED = (Lintable("workload", DocumentKind.WORKLOAD, _look, folder="workloads"),)
