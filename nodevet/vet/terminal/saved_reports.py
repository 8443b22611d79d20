"""Saved runs that a command line names."""

from pathlib import Path
from typing import Any

from nodevet.cli.speech import say
from nodevet.model import Run
from nodevet.vet.use import earlier


def read_run(path: Path, *, most: float) -> Run:
    """A saved run; prints notes about its age and schema. Raises SavedRunError."""
    run, notes = earlier.read_run(path, most=most)
    for note in notes:
        say(note)
    return run


def read_report(path: Path) -> tuple[Any, earlier.SavedKind | None]:
    """Like `read_run`, for today; also reads a document of a feature, with its kind."""
    document, kind, notes = earlier.read_report(path, most=earlier.DAY)
    for note in notes:
        say(note)
    return document, kind
