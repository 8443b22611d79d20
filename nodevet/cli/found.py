"""Which commands there are, by their files alone: nothing is imported to list them.

What a feature adds to the command line is in FEATURE/command.py, a command of the feature's name,
or in FEATURE/commands/NAME.py for each of several commands.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from nodevet.base.features import folders
from nodevet.base.modules import names_in


@cache
def modules() -> Mapping[str, str]:
    """Each command's name, with the module that holds it."""
    found: dict[str, str] = {}
    for folder in folders():
        found |= _of_feature(folder)
    return found


def _of_feature(folder: Path) -> dict[str, str]:
    package = f"nodevet.{folder.name}"
    if (folder / "command.py").is_file():
        return {folder.name: f"{package}.command"}
    try:
        names = names_in([str(folder / "commands")])
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {name: f"{package}.commands.{name}" for name in names}
