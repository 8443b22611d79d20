"""Which commands there are, by their files alone: nothing is imported to list them.

What a feature adds to the command line is in FEATURE/command.py, a command of the feature's name,
or in FEATURE/commands/NAME.py for each of several commands. FEATURE/groups/NAME.py is a group that
also lists the feature's commands.
"""

import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import click

from nodevet.base.features import TOP, feature_folders, names_in


@cache
def modules() -> Mapping[str, str]:
    """Each command's name, with the module that holds it."""
    commands: dict[str, str] = {}
    for folder in feature_folders():
        if (folder / "command.py").is_file():
            commands[folder.name] = f"nodevet.{folder.name}.command"
        else:
            commands |= members(folder.name) | _modules_of(folder / "groups")
    return commands


def members(feature: str) -> dict[str, str]:
    """The commands of one feature, by name."""
    return _modules_of(TOP / feature / "commands")


@cache
def grouped_names() -> frozenset[str]:
    """The commands of a group."""
    features = (folder.name for folder in feature_folders() if (folder / "groups").is_dir())
    return frozenset(name for feature in features for name in members(feature))


def load(module: str) -> click.Command:
    """The command that a module holds."""
    command = importlib.import_module(module).command
    if not isinstance(command, click.Command):
        raise TypeError(f"{module} defines no command")
    return command


def _modules_of(folder: Path) -> dict[str, str]:
    package = ".".join(("nodevet", *folder.relative_to(TOP).parts))
    try:
        return {name: f"{package}.{name}" for name in names_in([str(folder)])}
    except (FileNotFoundError, NotADirectoryError):
        return {}
