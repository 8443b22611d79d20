"""A workload file: read, and everything that is wrong with it, each with the line it stands in."""

from pathlib import Path

from nodevet.base.problems import Problem, listed
from nodevet.checking.feeding.workload import Workload, WorkloadFile, workload_of
from nodevet.document.kinds import DocumentKind, mistaken
from nodevet.document.parse import parse
from nodevet.document.text import UnreadableError, read
from nodevet.document.typed import fitted


class WorkloadError(Exception):
    """A file that cannot be used; the message is everything that is wrong with it."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__(listed(problems))


def read_workload(path: Path) -> Workload:
    """The numbers of a workload file. Raises WorkloadError."""
    fields, problems = opened(path)
    if problems or fields is None:
        raise WorkloadError(problems)
    return workload_of(fields, fields.workload)


def opened(path: Path) -> tuple[WorkloadFile | None, tuple[Problem, ...]]:
    """The fields of the file, or None, and all that is wrong with it."""
    if wrong := mistaken(path, DocumentKind.WORKLOAD):
        return None, (Problem(str(path), "", wrong),)
    try:
        source = read(path)
    except UnreadableError as error:
        return None, (error.problem,)
    tree = parse(source)
    if tree.root is None:
        return None, tree.problems
    fields, problems = fitted(tree.root, WorkloadFile, source.shown)
    return fields, (*tree.problems, *problems)
