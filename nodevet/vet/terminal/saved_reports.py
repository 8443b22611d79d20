"""Saved runs that a command line names."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nodevet.base.age import run_refusal
from nodevet.base.errors import UserError
from nodevet.cli.speech import say
from nodevet.model.run import Run
from nodevet.vet import formats
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


def require_recent(path: Path, run: Run, names: Iterable[str]) -> None:
    """Raises UserError for a run that is older than a day, or of unknown age, if one of the formats
    in `names` is read as the state of the hosts now."""
    why = run_refusal(run.started, now=time.time(), most=earlier.DAY)
    state = next(filter(formats.is_state, names), "")
    if why and state:
        text = f"{path}: {why}, and {state} is the state of the hosts now"
        raise UserError(f"{text}; vet the hosts again with --format {state}")
