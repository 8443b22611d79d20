"""Saved runs that a command line names."""

from pathlib import Path

from nodevet.cli.common.speech import say
from nodevet.model import Run
from nodevet.run import earlier


def read_run(path: Path, *, most: float) -> Run:
    """A saved run; what the reader must know of it is said. Raises SavedRunError."""
    run, notes = earlier.read_run(path, most=most)
    for note in notes:
        say(note)
    return run


def earlier_run(path: Path | None, *, quiet: bool = False) -> Run | None:
    """The run to compare with; the first of a series has none, and that is said, if not `quiet`."""
    if path is None:
        return None
    if path.exists():
        return read_run(path, most=earlier.PREVIOUS)
    if not quiet:
        say(f"{path}: no earlier run is there; nothing is marked as new")
    return None
