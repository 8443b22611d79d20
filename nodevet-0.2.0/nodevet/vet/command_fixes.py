"""Read the fixes of a project that are YAML: a command and its inverse."""

from pathlib import Path

from nodevet.base.problems import problems_text
from nodevet.checking.catalog import CatalogError
from nodevet.document.typed_file import read_typed
from nodevet.fixing.command_fix import CommandFixFile, fix_of
from nodevet.fixing.model import Fix


def read_fix(path: Path) -> tuple[str, Fix]:
    """The title and the fix. Raises CatalogError with every problem of the file."""
    file, problems = read_typed(path, CommandFixFile)
    if file is None or problems:
        raise CatalogError(problems_text(problems))
    return file.title, fix_of(file)
