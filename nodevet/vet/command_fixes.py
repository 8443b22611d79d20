"""Read the fixes of a project that are YAML: a command and its inverse."""

from pathlib import Path

from nodevet.base.problems import Problem, problems_text
from nodevet.checking.catalog import CatalogError
from nodevet.document.parse import parse
from nodevet.document.text import UnreadableError, read
from nodevet.document.typed import typed_or_problems
from nodevet.fixing.command_fix import CommandFixFile, fix_of
from nodevet.fixing.model import Fix


def read_fix(path: Path) -> tuple[str, Fix]:
    """The title and the fix. Raises CatalogError with every problem of the file."""
    file, problems = read_fix_file(path)
    if file is None or problems:
        raise CatalogError(problems_text(problems))
    return file.title, fix_of(file)


def read_fix_file(path: Path) -> tuple[CommandFixFile | None, tuple[Problem, ...]]:
    """The fields of the file (None if it cannot be read), and all its problems."""
    try:
        source = read(path)
    except UnreadableError as error:
        return None, (error.problem,)
    tree = parse(source)
    if tree.root is None:
        return None, tree.problems
    fields, problems = typed_or_problems(tree.root, CommandFixFile, source.shown)
    return fields, (*tree.problems, *problems)
