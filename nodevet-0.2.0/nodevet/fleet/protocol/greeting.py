"""The first line of nodevet-shard, which tells its version and machine. Pure.

A login shell may print before it: output before the mark is skipped, up to a bound. Frames follow:
an outcome for each host; `lost`, a host without an answer, and why; `refused`, why it visits no
host; and a `beat` in answer to each of the controller's, so that silence means a lost connection.
"""

import os
import sys
from importlib.util import find_spec
from typing import Annotated

import msgspec
from msgspec import Meta

from nodevet import __version__
from nodevet.base import typed
from nodevet.base.printable import brief, last_line

PROTOCOL = 1  # version of the frames
MARK = b"\x1eNODEVET-SHARD "
NOISE = 1 << 16  # bytes that a login shell may print before
LINE = 1 << 12  # bytes of the greeting
NEEDED = ("pyinfra", "pynvml", "gevent", "paramiko")
BEAT = 10  # seconds
SILENCE = 45  # seconds after which the other side counts as cut off

Word = Annotated[str, Meta(max_length=200)]


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """The started program. `missing`: modules that nodevet needs and that are not installed."""

    protocol: int
    nodevet: Word
    python: Word
    cpus: Annotated[int, Meta(ge=1, le=4096)]
    missing: Annotated[tuple[Word, ...], Meta(max_length=16)] = ()


class NoGreetingError(ValueError):
    """The started program is not a usable nodevet-shard; the message says why."""


def greeting() -> Greeting:
    """The greeting of this installation."""
    return Greeting(
        protocol=PROTOCOL,
        nodevet=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        cpus=len(os.sched_getaffinity(0)),
        missing=tuple(name for name in NEEDED if find_spec(name) is None),
    )


def write_greeting(reply: Greeting) -> bytes:
    return b"\n" + MARK + msgspec.json.encode(reply) + b"\n"


class GreetingReader:
    """Finds the greeting in the output of a program. `rest`: the bytes behind it."""

    def __init__(self) -> None:
        self._text = bytearray()
        self.rest = b""

    def take(self, chunk: bytes) -> Greeting | None:
        """The greeting, once it is complete. Raises NoGreetingError."""
        self._text += chunk
        _, mark, line = self._text.partition(MARK)
        text, newline, rest = line.partition(b"\n")
        if mark and len(text) > LINE:
            raise NoGreetingError(f"wrote a greeting of more than {LINE} bytes")
        if not newline:
            if not mark and len(self._text) > NOISE:
                raise NoGreetingError(f"gave no greeting; it wrote: {self.last_output}")
            return None
        self.rest = bytes(rest)
        try:
            return typed.decode(bytes(text), Greeting)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NoGreetingError(f"gave a malformed greeting: {brief(error, 200)}") from error

    @property
    def last_output(self) -> str:
        """The last line of the output so far."""
        return last_line(bytes(self._text)) or "nothing"


def unfit_reason(other: Greeting, own: Greeting) -> str:
    """Why the started program cannot be used, or ""."""
    if other.protocol != own.protocol or other.nodevet != own.nodevet:
        return (
            f"has nodevet {brief(other.nodevet)} (protocol {other.protocol}), this is nodevet "
            f"{own.nodevet} (protocol {own.protocol}): install the same version there"
        )
    if other.missing:
        missing = ", ".join(brief(name) for name in other.missing)
        return f"has a nodevet without {missing}: reinstall nodevet {own.nodevet} there"
    return ""
