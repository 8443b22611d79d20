"""Text that a database takes: without NUL, and valid UTF-8."""

from typing import Any

import msgspec


def plain(text: str) -> str:
    """Text that others wrote, with what PostgreSQL does not take spelt out."""
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def encoded(value: Any) -> bytes:
    """As JSON; text that is not valid Unicode is spelt out."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, OverflowError):
        return msgspec.json.encode(_plain(msgspec.to_builtins(value, enc_hook=repr)))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
