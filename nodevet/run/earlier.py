"""Saved runs, diagnoses and answers of `feed`: read from the reports that hold them, and how old
they are."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nodevet import report
from nodevet.base.age import AHEAD, seconds_of
from nodevet.base.durations import coarse
from nodevet.base.files import read_input
from nodevet.base.printable import brief
from nodevet.document.kinds import DocumentKind, mistaken, recognize
from nodevet.model import Run
from nodevet.report.parts.errors import ReportError
from nodevet.report.parts.saved import Decoded, Schema, decode

if TYPE_CHECKING:
    from nodevet.diagnosis.model import Diagnosis
    from nodevet.feed.answer import FeedAnswer

Parsed = TypeVar("Parsed")
DAY = 86400.0  # seconds: a run that is rendered again is of today
WRITTEN = "`nodevet {} --format json:FILE` writes one"
SHOWN = 40  # columns of a time


class SavedRunError(Exception):
    """A saved run that cannot be read; the message names the file."""


def read_run(path: Path, *, most: float) -> tuple[Run, Sequence[str]]:
    """A run from its json or jsonl report, and what the reader must know: what of it is not
    understood, and its age if that is more than `most` seconds. Raises SavedRunError.
    """
    return _run(_data(path), path, most)


def read_report(path: Path, *, most: float) -> "tuple[Run | Diagnosis | FeedAnswer, Sequence[str]]":
    """What a report holds that can be rendered again, and what the reader must know of it, as
    `read_run` tells it. Raises SavedRunError."""
    data = _data(path)
    kind = recognize(data)
    if kind is DocumentKind.FEED:
        return _parsed(data, parse_feed, path, kind, "feed"), []
    if kind is DocumentKind.DIAGNOSIS:
        found = _parsed(data, parse_diagnosis, path, kind, "diagnose")
        return found, [f"{path}: {note}" for note in _age("diagnosis", found.started, most)]
    return _run(data, path, most)


def parse_diagnosis(text: str | bytes) -> "Diagnosis":
    """A diagnosis from its JSON form. Raises ReportError if it is none, or of another schema."""
    from nodevet.diagnosis.model import SCHEMA, Diagnosis

    return _of_schema(text, SCHEMA, Diagnosis, "diagnosis")


def parse_feed(text: str | bytes) -> "FeedAnswer":
    """An answer of `nodevet feed` from its JSON form. Raises as `parse_diagnosis` does."""
    from nodevet.feed.answer import FEED_SCHEMA, FeedAnswer

    return _of_schema(text, FEED_SCHEMA, FeedAnswer, "answer of feed")


def _of_schema(text: str | bytes, current: int, kind: type[Decoded], what: str) -> Decoded:
    schema = decode(text, Schema, what).schema
    if schema != current:
        raise ReportError(f"the {what} has schema {schema}, this nodevet reads {current}")
    return decode(text, kind, what)


def _run(data: bytes, path: Path, most: float) -> tuple[Run, Sequence[str]]:
    run, notes = _parsed(data, report.read, path, DocumentKind.RUN, "check")
    return run, [f"{path}: {note}" for note in (*notes, *_age("run", run.started, most))]


def _data(path: Path) -> bytes:
    try:
        return read_input(path)
    except FileNotFoundError as error:
        raise SavedRunError(f"{path}: there is no such file; check the path") from error
    except OSError as error:
        raise SavedRunError(f"{path}: cannot be read: {error.strerror}") from error


def _parsed(
    data: bytes, parse: Callable[[bytes], Parsed], path: Path, kind: DocumentKind, command: str
) -> Parsed:
    try:
        return parse(data)
    except ReportError as error:
        told = mistaken(path, kind) or f"{error}; {WRITTEN.format(command)}"
        raise SavedRunError(f"{path}: {told}") from error


def _age(what: str, began: str, most: float) -> Sequence[str]:
    """How old a run is, in words; nothing if that is at most so many seconds."""
    started, now = seconds_of(began), time.time()
    if started is None or started > now + AHEAD:
        age = "of unknown age"
    elif now - started > most:
        age = f"{coarse(now - started)} old"
    else:
        return []
    return [f"the {what} is {age}: it was started at {brief(began, SHOWN) or 'an unknown time'}"]
