"""The files that say who may approve fixes, for `nodevet lint`."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nodevet.base.problems import Problem
from nodevet.base.project import Project
from nodevet.document.kinds import DocumentKind, Lintable
from nodevet.document.text import UnreadableError, display_path, read
from nodevet.fix.approval.policy import RULES, SIGNERS, PolicyError, load
from nodevet.fix.approval.signer_lines import signer_problems


def _check_folder(path: Path) -> tuple[Sequence[str], Sequence[Problem]]:
    """Both files of the folder, since the one is checked against the other."""
    folder = path.parent
    try:
        load(Project(folder, named=True))
        problems: tuple[Problem, ...] = ()
    except PolicyError as error:
        problems = error.problems
    with suppress(UnreadableError):  # `load` has reported it
        problems = (*problems, *signer_problems(read(folder / SIGNERS)))
    paths = (path for name in (RULES, SIGNERS) if (path := folder / name).exists())
    return [display_path(path) for path in paths], problems


LINTED = (Lintable("approval", DocumentKind.APPROVAL, _check_folder, names=(RULES, SIGNERS)),)
