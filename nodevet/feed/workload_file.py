"""Read a workload file, and report all its problems with their lines."""

from pathlib import Path

from nodevet.base.problems import Problem, problems_text
from nodevet.checking.feeding.workload import Workload, WorkloadFile, workload_of
from nodevet.document.kinds import DocumentKind, wrong_kind_text
from nodevet.document.typed_file import read_typed


class WorkloadError(Exception):
    """A file with problems; the message lists all of them."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__(problems_text(problems))


def read_workload(path: Path) -> Workload:
    """The numbers of a workload file. Raises WorkloadError."""
    fields, problems = read_workload_file(path)
    if problems or fields is None:
        raise WorkloadError(problems)
    return workload_of(fields, fields.workload)


def read_workload_file(path: Path) -> tuple[WorkloadFile | None, tuple[Problem, ...]]:
    """The fields of the file (None if it cannot be read), and all its problems."""
    if wrong := wrong_kind_text(path, DocumentKind.WORKLOAD):
        return None, (Problem(str(path), "", wrong),)
    return read_typed(path, WorkloadFile)
