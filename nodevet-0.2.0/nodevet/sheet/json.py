"""A document as JSON that is safe to print. Pure."""

import json
import re
from typing import Any

import msgspec

from nodevet.base.printable import is_visible

_SPECIAL = re.compile(r"[^\x00-\x7e]")


def indented(document: Any) -> str:
    """The document, indented, with a newline at the end."""
    return msgspec.json.format(encode(document), indent=2) + "\n"


def encode(value: Any) -> str:
    """Compact JSON that is safe to print.

    Invisible characters are escaped as in JSON and decode to themselves, except lone surrogates,
    which UTF-8 cannot hold: they become visible escapes.
    """
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(value)))
    text = encoded.decode()
    return text if is_visible(text) else _SPECIAL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return character if is_visible(character) else json.dumps(character)[1:-1]


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value
