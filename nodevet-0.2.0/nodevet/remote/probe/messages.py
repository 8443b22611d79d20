"""The messages of a child that reads sections.

A message is a letter, a length in four bytes, and that many bytes. A: the answer of the current
section. S: the child stops, and another child has to read the rest. The child writes its current
call into shared memory: see `Note`.
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
    """Write one message."""
    data = HEADER.pack(kind, len(text)) + text
    while data:
        data = data[os.write(writer, data) :]


class Note(object):
    """A child's current call, in a page that parent and child share: a message would cost more than
    most of the thousands of calls."""

    def __init__(self) -> None:
        self.page = mmap.mmap(-1, mmap.PAGESIZE)

    def write(self, text: str) -> None:
        data = text.encode("ascii", "backslashreplace")[:NOTE_LIMIT]
        self.page[:NOTE_LIMIT] = data.ljust(NOTE_LIMIT, b"\0")

    def read(self) -> str:
        return self.page[:NOTE_LIMIT].rstrip(b"\0").decode("ascii", "backslashreplace")


class Messages(object):
    """The messages received from a child."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.received = 0  # bytes since the last answer

    def take(self, chunk: bytes) -> "Iterator[tuple[bytes, bytes]]":
        """The complete messages, as (letter, text). Raises ValueError after them."""
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
    """A result as ASCII JSON, or an error if JSON cannot hold it."""
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
    """A result from a child's answer, or an error."""
    try:
        result = json.loads(text.decode("ascii"), parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        return failure("the collector's answer is not JSON: " + reason(error))
    if not isinstance(result, dict) or result.get("status") not in STATUSES:
        return failure("the collector's answer is not a result")
    return result
