"""Saved runs: read from the reports that hold them, and how old they are."""

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from nodevet import report
from nodevet.age import AHEAD, WEEK, seconds_of, words
from nodevet.document.kinds import DocumentKind, mistaken
from nodevet.model import Run
from nodevet.printable import brief
from nodevet.report.parts.errors import ReportError

DAY, PREVIOUS = 86400.0, WEEK
"""Seconds: a run that is rendered again is of today; one that is compared with, of last week."""
WRITTEN = "`nodevet check --format json:FILE` writes one"
SHOWN = 40  # columns of a time


class SavedRunError(Exception):
    """A saved run that cannot be read; the message names the file."""


def read_run(path: Path, *, most: float) -> tuple[Run, Sequence[str]]:
    """A run from its json or jsonl report, and what the reader must know: what of it is not
    understood, and its age if that is more than `most` seconds. Raises SavedRunError.
    """
    try:
        run, notes = report.read(path.read_bytes())
    except FileNotFoundError as error:
        raise SavedRunError(f"{path}: there is no such file; check the path") from error
    except OSError as error:
        raise SavedRunError(f"{path}: cannot be read: {error.strerror}") from error
    except ReportError as error:
        told = mistaken(path, DocumentKind.RUN) or f"{error}; {WRITTEN}"
        raise SavedRunError(f"{path}: {told}") from error
    aged = _age(run, most)
    return run, [f"{path}: {note}" for note in (*notes, *([aged] if aged else []))]


def among(run: Run, hosts: Run) -> Run:
    """An earlier run, as if it had been of the hosts of this one only: no other is gone."""
    names = {report.host for report in hosts.hosts}
    return structs.replace(run, hosts=tuple(one for one in run.hosts if one.host in names))


def _age(run: Run, most: float) -> str:
    """How old a run is, in words; empty if that is at most so many seconds."""
    started, now = seconds_of(run.started), time.time()
    if started is None or started > now + AHEAD:
        age = "of unknown age"
    elif now - started > most:
        age = f"{words(now - started)} old"
    else:
        return ""
    return f"the run is {age}: it was started at {brief(run.started, SHOWN) or 'an unknown time'}"
