"""Saved runs and saved documents of features: read from their reports, and how old they are."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nodevet.base.age import AHEAD, seconds_of
from nodevet.base.durations import coarse
from nodevet.base.features import feature_modules
from nodevet.base.files import read_input
from nodevet.base.printable import brief
from nodevet.document.kinds import DocumentKind, recognize, wrong_kind_text
from nodevet.model.run import Run
from nodevet.sheet.errors import ReportError
from nodevet.sheet.model import Sheet
from nodevet.vet import formats
from nodevet.vet.saved_schema import Decoded, Schema, decode

Parsed = TypeVar("Parsed")
DAY = 86400.0  # seconds: a run that is rendered again is of today
WRITTEN = "`nodevet {} --format json:FILE` writes one"
SHOWN = 40  # columns of a time


class SavedRunError(Exception):
    """A saved run that cannot be read; the message names the file."""


def read_run(path: Path, *, most: float) -> tuple[Run, Sequence[str]]:
    """A run from its json or jsonl report, and notes: parts that this version does not know, and
    its age if it is older than `most` seconds. Raises SavedRunError.
    """
    return _run(_data(path), path, most)


class SavedKind(NamedTuple):
    """A document that a report may hold instead of a run. A feature that writes one has it in its
    saved.py, as `SAVED`."""

    kind: DocumentKind
    noun: str  # diagnosis
    command: str  # that writes it: diagnose
    parse: Callable[[bytes], Any]
    """Raises ReportError."""
    sheet: Callable[[Any, bool], Sheet]
    """The lines to show; with True, all of them."""
    dated: bool = True  # whether it has `started`


def read_report(path: Path, *, most: float) -> tuple[Any, SavedKind | None, Sequence[str]]:
    """The document of a report, its kind (None for a run), and notes as of `read_run`. Raises
    SavedRunError."""
    data = _data(path)
    kind = recognize(data)
    of_features = (
        feature_modules("saved") if kind is not DocumentKind.RUN else ()
    )  # a run needs none
    for feature in of_features:
        saved: SavedKind = feature.SAVED
        if saved.kind is kind:
            document = _parsed(data, saved.parse, path, kind, saved.command)
            notes = _age(saved.noun, document.started, most) if saved.dated else ()
            return document, saved, [f"{path}: {note}" for note in notes]
    run, notes = _run(data, path, most)
    return run, None, notes


def of_schema(text: bytes, current: int, kind: type[Decoded], what: str) -> Decoded:
    """A document from its JSON form. Raises ReportError if it is none, or of another schema."""
    schema = decode(text, Schema, what).schema
    if schema != current:
        raise ReportError(f"the {what} has schema {schema}, this nodevet reads {current}")
    return decode(text, kind, what)


def _run(data: bytes, path: Path, most: float) -> tuple[Run, Sequence[str]]:
    run, notes = _parsed(data, formats.read, path, DocumentKind.RUN, "check")
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
        why = wrong_kind_text(path, kind) or f"{error}; {WRITTEN.format(command)}"
        raise SavedRunError(f"{path}: {why}") from error


def _age(what: str, began: str, most: float) -> Sequence[str]:
    """The age of a run in words; nothing up to `most` seconds."""
    started, now = seconds_of(began), time.time()
    if started is None or started > now + AHEAD:
        age = "of unknown age"
    elif now - started > most:
        age = f"{coarse(now - started)} old"
    else:
        return []
    return [f"the {what} is {age}: it was started at {brief(began, SHOWN) or 'an unknown time'}"]
