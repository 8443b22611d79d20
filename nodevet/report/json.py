"""A whole run as one JSON document; that of a run of checks reads back, see `parse`."""

import json
import re
from typing import Any, TypeVar

import msgspec

from nodevet.model import RUN_SCHEMA, Run
from nodevet.report.parts.errors import ReportError
from nodevet.result import Result

ENDING = ".json"
_SPECIAL = re.compile(r"[^\x00-\x7e]")

Decoded = TypeVar("Decoded")


def render_checks(run: Run) -> str:
    """The run, indented, with a newline at the end."""
    return _indented(run)


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


class _Schema(msgspec.Struct, frozen=True):
    schema: int


def parse(text: str | bytes) -> Run:
    """A run from its JSON form. Raises ReportError where it is none, or of another schema."""
    found = decode(text, _Schema, "run")
    check_schema(found.schema)
    return decode(text, Run, "run")


def check_schema(schema: int) -> None:
    """Raises ReportError for a schema that this version does not read."""
    if schema != RUN_SCHEMA:
        newer = "; read it with a newer nodevet" if schema > RUN_SCHEMA else ""
        raise ReportError(
            f"the saved run has schema {schema}, this nodevet reads {RUN_SCHEMA}{newer}"
        )


def decode(text: str | bytes, kind: type[Decoded], what: str) -> Decoded:
    """JSON as `kind`. Raises ReportError; `what` names it there."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ReportError(f"not a saved {what}: {error}") from error


def render_fixes(result: Result) -> str:
    """The same; see `nodevet.result` for its shape."""
    return _indented(result)


def _indented(document: Run | Result) -> str:
    return msgspec.json.format(encode(document), indent=2) + "\n"
