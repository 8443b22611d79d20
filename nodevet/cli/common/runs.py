"""Saved runs that a command line names."""

from pathlib import Path
from typing import TYPE_CHECKING

from nodevet.cli.common.speech import say
from nodevet.model import Run
from nodevet.run import earlier

if TYPE_CHECKING:
    from nodevet.diagnosis.model import Diagnosis
    from nodevet.feed.answer import FeedAnswer


def read_run(path: Path, *, most: float) -> Run:
    """A saved run; what the reader must know of it is said. Raises SavedRunError."""
    run, notes = earlier.read_run(path, most=most)
    for note in notes:
        say(note)
    return run


def read_report(path: Path) -> "Run | Diagnosis | FeedAnswer":
    """As `read_run`, of today; a diagnosis and an answer of `feed`, too."""
    found, notes = earlier.read_report(path, most=earlier.DAY)
    for note in notes:
        say(note)
    return found
