"""The first line of nodevet-shard, by which it is known what was started over there. Pure.

A login shell may print before it: what stands before the mark is skipped, up to a bound. After it
come frames: an outcome for each host; `lost`, hosts that it has no answer for, and why; `refused`,
why it visits nobody; and a `beat` in answer to each of the controller's, so that silence means
something.
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

PROTOCOL = 1  # of orders, outcomes and what is around them
MARK = b"\x1eNODEVET-SHARD "
NOISE = 1 << 16  # bytes that a login shell may print before
LINE = 1 << 12  # bytes of the greeting
NEEDED = ("pyinfra", "pynvml", "gevent", "paramiko")
BEAT = 10  # seconds
SILENCE = 45  # seconds after which the other side is taken for cut off

Word = Annotated[str, Meta(max_length=200)]


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """What was started over there. `missing`: what nodevet needs, and is not installed there."""

    protocol: int
    nodevet: Word
    python: Word
    cpus: Annotated[int, Meta(ge=1, le=4096)]
    missing: Annotated[tuple[Word, ...], Meta(max_length=16)] = ()


class NoGreetingError(ValueError):
    """What was started is not a nodevet-shard that can be used; the message says why."""


def greeting() -> Greeting:
    """Of this installation."""
    return Greeting(
        protocol=PROTOCOL,
        nodevet=__version__,
        python=".".join(map(str, sys.version_info[:3])),
        cpus=len(os.sched_getaffinity(0)),
        missing=tuple(name for name in NEEDED if find_spec(name) is None),
    )


def write_greeting(told: Greeting) -> bytes:
    return b"\n" + MARK + msgspec.json.encode(told) + b"\n"


class GreetingReader:
    """Finds the greeting in what came, and leaves what follows it."""

    def __init__(self) -> None:
        self._heard = bytearray()
        self.rest = b""

    def take(self, chunk: bytes) -> Greeting | None:
        """The greeting, once it is whole. Raises NoGreetingError."""
        self._heard += chunk
        _, mark, line = self._heard.partition(MARK)
        text, ended, rest = line.partition(b"\n")
        if mark and len(text) > LINE:
            raise NoGreetingError(f"wrote a greeting of more than {LINE} bytes")
        if not ended:
            if not mark and len(self._heard) > NOISE:
                raise NoGreetingError(f"gave no greeting; it wrote: {self.said}")
            return None
        self.rest = bytes(rest)
        try:
            return typed.decode(bytes(text), Greeting)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NoGreetingError(f"gave a malformed greeting: {brief(error, 200)}") from error

    @property
    def said(self) -> str:
        """The last line of what came instead."""
        return last_line(bytes(self._heard)) or "nothing"


def unfit(there: Greeting, here: Greeting) -> str:
    """Why what was started cannot be used; empty if it can."""
    if there.protocol != here.protocol or there.nodevet != here.nodevet:
        return (
            f"has nodevet {brief(there.nodevet)} (protocol {there.protocol}), this is nodevet "
            f"{here.nodevet} (protocol {here.protocol}): install the same version there"
        )
    if there.missing:
        missing = ", ".join(brief(name) for name in there.missing)
        return f"has a nodevet without {missing}: install nodevet {here.nodevet} there anew"
    return ""
