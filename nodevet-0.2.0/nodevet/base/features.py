"""Features and plug-ins, discovered by their files: nothing is imported to list them.

A feature is a folder of nodevet. Each question of the core has a file name of its own, such as
`schemas.py` or `linting.py`: a feature that has the file answers.
"""

import os
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

TOP = Path(__file__).parents[1]
CATALOGS = frozenset({"baselines", "checks", "fixes"})  # whose files have the names of checks


def feature_folders() -> Iterator[Path]:
    """The folders that may be features, sorted."""
    names = sorted(os.listdir(TOP))  # noqa: PTH208 (names are enough)
    return (TOP / name for name in names if name not in CATALOGS)


def feature_modules(name: str) -> Iterator[ModuleType]:
    """The module `name` of each feature that has it, imported."""
    for folder in feature_folders():
        if (folder / f"{name}.py").is_file():
            yield import_module(f"nodevet.{folder.name}.{name}")


def names_in(folders: Iterable[str]) -> tuple[str, ...]:
    """The names of a package's modules, sorted, given its `__path__`; without subpackages.

    pkgutil does the same, but takes longer to import than many of them.
    """
    files = {name for folder in folders for name in os.listdir(folder)}  # noqa: PTH208
    names = {name.removesuffix(".py") for name in files if name.endswith(".py")}
    return tuple(sorted(names - {"__init__"}))
