"""Workload files, for `nodevet lint`."""

from collections.abc import Sequence
from pathlib import Path

from nodevet.base.problems import Problem
from nodevet.document.kinds import DocumentKind, Lintable
from nodevet.document.text import display_path
from nodevet.feed.workload_file import read_workload_file


def _lint(path: Path) -> tuple[Sequence[str], Sequence[Problem]]:
    return [display_path(path)], read_workload_file(path)[1]


LINTED = (Lintable("workload", DocumentKind.WORKLOAD, _lint, folder="workloads"),)
