"""A whole run, a diagnosis or an answer of `feed` as one JSON document; `nodevet report` reads it
again, but for that of a run of fixes."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from nodevet.model import HostReport, Run
from nodevet.report.parts.errors import ReportError
from nodevet.report.parts.saved import (
    UPGRADES,
    Decoded,
    Schema,
    decode,
    is_current,
    upgraded,
)
from nodevet.upgrades import Document, Upgrades

if TYPE_CHECKING:
    from nodevet.diagnosis.model import Diagnosis
    from nodevet.feed.answer import FeedAnswer
    from nodevet.feed.measured import MeasuredLoader
    from nodevet.result import Result

ENDING = ".json"
NO_HOSTS = "[]\n}\n"  # how a run without any ends: they are its last field
INDENT = "    "
_SPECIAL = re.compile(r"[^\x00-\x7e]")


def render_checks(run: Run) -> str:
    """The run, indented, with a newline at the end."""
    return "".join(pieces_of_checks(run))


def pieces_of_checks(run: Run) -> Iterator[str]:
    """The same, host by host."""
    whole = _indented(replace(run, hosts=()))
    head = whole.removesuffix(NO_HOSTS)
    if not run.hosts or head == whole:
        yield whole
        return
    yield head
    mark = "["
    for host in run.hosts:
        yield f"{mark}\n{INDENT}" + _indented(host).rstrip("\n").replace("\n", f"\n{INDENT}")
        mark = ","
    yield "\n  ]\n}\n"


def encode(value: Any) -> str:
    """Compact JSON that is safe to print.

    What cannot be seen is escaped as JSON does it, and reads back as it was;
    but for lone surrogates, which UTF-8 cannot hold: they become visible escapes.
    """
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(value)))
    text = encoded.decode()
    return text if text.isprintable() else _SPECIAL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value


def parse(text: str | bytes, upgrades: Upgrades = UPGRADES) -> Run:
    """A run of checks from its JSON form. Raises ReportError if it is none, or of a schema that
    this nodevet does not read."""
    if is_current(decode(text, Schema, "run").schema, upgrades):
        return decode(text, Run, "run")
    return upgraded(decode(text, Document, "run"), upgrades)


def render_fixes(result: "Result") -> str:
    """The same; see `nodevet.result` for its shape."""
    return _indented(result)


def render_feed(answer: "FeedAnswer") -> str:
    """The same; see `nodevet.feed.answer`."""
    return _indented(answer)


def render_diagnosis(incident: "Diagnosis") -> str:
    """The same; see `nodevet.diagnosis.model`."""
    return _indented(incident)


def parse_diagnosis(text: str | bytes) -> "Diagnosis":
    """A diagnosis from its JSON form. Raises ReportError if it is none, or of another schema."""
    from nodevet.diagnosis.model import SCHEMA, Diagnosis

    return _of_schema(text, SCHEMA, Diagnosis, "diagnosis")


def render_measured(found: "MeasuredLoader") -> str:
    """The same; see `nodevet.feed.measured`."""
    return _indented(found)


def parse_feed(text: str | bytes) -> "FeedAnswer":
    """An answer of `nodevet feed` from its JSON form. Raises as `parse_diagnosis` does."""
    from nodevet.feed.answer import FEED_SCHEMA, FeedAnswer

    return _of_schema(text, FEED_SCHEMA, FeedAnswer, "answer of feed")


def _of_schema(text: str | bytes, current: int, kind: type[Decoded], what: str) -> Decoded:
    schema = decode(text, Schema, what).schema
    if schema != current:
        raise ReportError(f"the {what} has schema {schema}, this nodevet reads {current}")
    return decode(text, kind, what)


def _indented(
    document: "Run | HostReport | Result | FeedAnswer | MeasuredLoader | Diagnosis",
) -> str:
    return msgspec.json.format(encode(document), indent=2) + "\n"
