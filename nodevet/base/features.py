"""What features are made of, found by their files: nothing is imported to list it.

A feature is a folder of nodevet. What the core asks of features has a file name of its own, such as
`schemas.py` or `linting.py`: a feature that has the file answers.
"""

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

TOP = Path(__file__).parents[1]
CATALOGS = frozenset({"baselines", "checks", "fixes"})  # whose files have the names of checks


def folders() -> Iterator[Path]:
    """The folders that may be features, sorted."""
    names = sorted(os.listdir(TOP))  # noqa: PTH208 (names are enough)
    return (TOP / name for name in names if name not in CATALOGS)


def answers(name: str) -> Iterator[ModuleType]:
    """The file of this name of each feature that has one, imported."""
    for folder in folders():
        if (folder / f"{name}.py").is_file():
            yield import_module(f"nodevet.{folder.name}.{name}")
