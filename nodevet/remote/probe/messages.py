"""What a child that reads sections tells its parent, message by message.

A message is a letter, a length in four bytes, and that many bytes. A is the answer of the section
that the child reads; S that it stops there, and what it was to read after it is for another child.
What it does right now is no message: it stands in memory that both have, see `Note`.
"""

import json
import mmap
import os
import struct

from nodevet.remote.probe.files import reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

STATUSES = ("ok", "absent", "denied", "error", "timeout")
OUTPUT_LIMIT = 16 << 20  # bytes for one section
HEADER = struct.Struct("!cI")
ANSWER, STOP = b"A", b"S"
LIMITS = {ANSWER: OUTPUT_LIMIT, STOP: 0}
NOTE_LIMIT = 200  # bytes


def send(writer: int, kind: bytes, text: bytes) -> None:
    """Write one message, whole."""
    rest = HEADER.pack(kind, len(text)) + text
    while rest:
        rest = rest[os.write(writer, rest) :]


class Note(object):
    """What a child does right now. It is made before the child is, and has a page that both see:
    a message would cost more than most calls that are noted, and they are thousands."""

    def __init__(self) -> None:
        self.page = mmap.mmap(-1, mmap.PAGESIZE)

    def write(self, text: str) -> None:
        said = text.encode("ascii", "backslashreplace")[:NOTE_LIMIT]
        self.page[:NOTE_LIMIT] = said.ljust(NOTE_LIMIT, b"\0")

    def read(self) -> str:
        return self.page[:NOTE_LIMIT].rstrip(b"\0").decode("ascii", "backslashreplace")


class Messages(object):
    """What has come of a child's messages."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.received = 0  # bytes since the last answer

    def take(self, chunk: bytes) -> "Iterator[tuple[bytes, bytes]]":
        """The messages that are whole now, one (letter, text) after the other; whatever comes after
        them is wrong with the next. Raises ValueError."""
        self.buffer += chunk
        self.received += len(chunk)
        while len(self.buffer) >= HEADER.size:
            kind, length = HEADER.unpack_from(self.buffer)
            if length > LIMITS.get(kind, -1):
                raise ValueError("the collector wrote something that is not a message")
            end = HEADER.size + length
            if len(self.buffer) < end:
                break
            text = bytes(self.buffer[HEADER.size : end])
            del self.buffer[:end]
            if kind == ANSWER:
                self.received = len(self.buffer)
            yield kind, text
        if self.received > OUTPUT_LIMIT:
            raise ValueError("more than {} MiB of output".format(OUTPUT_LIMIT >> 20))


def failure(why: str, status: str = "error") -> "dict[str, Any]":
    return {"status": status, "why": why}


def encode(result: object) -> bytes:
    """A result as JSON in ASCII; one that JSON cannot hold becomes an error."""
    try:
        return json.dumps(result, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps(failure("the result is not JSON: " + reason(error))).encode("ascii")


def finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:
        raise ValueError("a number that is not finite")
    return number


def decode(text: bytes) -> "dict[str, Any]":
    """A result from a child's answer; anything else becomes an error."""
    try:
        result = json.loads(text.decode("ascii"), parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        return failure("the collector's answer is not JSON: " + reason(error))
    if not isinstance(result, dict) or result.get("status") not in STATUSES:
        return failure("the collector's answer is not a result")
    return result
