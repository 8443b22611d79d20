"""Decode data as a type, from any thread.

At a struct's first use msgspec 0.22 stores its description on the class before it is complete: a
second thread that decodes the same type at that moment crashes the process. So decoders are made
under a lock; decoding needs none.
"""

import json
import threading
from functools import cache
from typing import Any, TypeVar

import msgspec

Typed = TypeVar("Typed")

_LOCK = threading.Lock()


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The JSON decoder of a type."""
    with _LOCK:
        return _cached_decoder(kind)


@cache
def _cached_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def unpacker(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """A MessagePack decoder of a type."""
    decoder(kind)
    return msgspec.msgpack.Decoder(kind)


def decode(text: bytes | str, kind: type[Typed]) -> Typed:
    """JSON as a type. Raises msgspec.DecodeError."""
    try:
        value: Typed = decoder(kind).decode(text)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"not UTF-8: {error.reason}") from error
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deep") from error
    return value


def repeated_key(text: bytes) -> str:
    """A key that one object of this JSON has twice, or "": decoders do not agree which value they
    keep. Raises msgspec.DecodeError if the text is not JSON."""
    if _encodes_to_itself(text):
        return ""
    try:
        json.loads(text, object_pairs_hook=_unique_keys)
    except _RepeatedKeyError as error:
        return str(error)
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(f"not JSON, or nested too deep: {error}") from error
    return ""


def _encodes_to_itself(text: bytes) -> bool:
    """Whether JSON is the same after it is decoded and encoded, which takes a fifth of the time to
    look at each key: then no object has a key twice, because the second one would be missing."""
    try:
        return msgspec.json.encode(msgspec.json.decode(text)) == text
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
        return False


class _RepeatedKeyError(Exception):
    """An object has this key twice."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> None:
    known: set[str] = set()
    for key, _ in pairs:
        if key in known:
            raise _RepeatedKeyError(key)
        known.add(key)


def convert(value: object, kind: type[Typed]) -> Typed:
    """Lists, mappings and scalars as a type. Raises msgspec.ValidationError."""
    decoder(kind)
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except RecursionError as error:
        raise msgspec.ValidationError("nested too deep") from error
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError(f"a text that is not Unicode: {error.reason}") from error
