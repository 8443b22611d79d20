"""A request to a program on a node, and the reader of its framed answer. Pure."""

import json
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import nodevet
from nodevet.remote import digest

_HEAD = re.compile(rb"\x1eNODEVET(Z?) ([!-~]{1,64}) (\d{1,9}) ([0-9a-f]{64})\n")
_HEAD_LENGTH = 128  # bytes; longer than any frame's head


class AnswerError(Exception):
    """The node's output has no complete answer; the message says what is missing."""


def request(
    *,
    nonce: str,
    root: str,
    whole_machine: bool = False,
    deadline: float,
    asked_s: float | None,
    sample: float = 0.0,
    asks: Mapping[str, Sequence[Any]] | None = None,
    sections: Sequence[str] = (),
    packed: bool = False,
) -> bytes:
    """A request to the probe, as one line of JSON.

    `asked_s`: this machine's time, seconds since 1970 UTC; None if the node is this machine, whose
    clock has no other one to be compared with. `whole_machine`, `sample`: see
    nodevet.remote.request. `asks`: what else to read, by section: names, or objects. `sections`:
    those to read; none: all. `packed`: the node compresses its answer.
    """
    fields = {
        "nonce": nonce,
        "do": "probe",
        "root": root,
        "whole_machine": whole_machine,
        "packed": packed,
        "deadline": deadline,
        "asked_s": asked_s,
        "sample": sample,
        "asks": {section: list(names) for section, names in (asks or {}).items()},
        "sections": list(sections),
        "probe": nodevet.__version__,
    }
    return json.dumps(fields).encode() + b"\n"


def remote_request(*, nonce: str, do: str, deadline: float, **rest: object) -> bytes:
    """A request to nodevet.remote, as one line of JSON.

    `do`: look, managers or lock; see nodevet.remote.request.
    """
    return json.dumps({"nonce": nonce, "do": do, "deadline": deadline, **rest}).encode() + b"\n"


def unframe(output: bytes, nonce: str) -> bytes:
    """The evidence document, not packed, in a node's whole output. Raises AnswerError."""
    answer = Answer(nonce, len(output))
    document = answer.take(output)
    if document is None:
        raise AnswerError(answer.missing())
    return document


class Answer:
    """A node's output so far, noise included, at most `limit` bytes."""

    def __init__(self, nonce: str, limit: int) -> None:
        self._nonce = nonce.encode()
        self._limit = limit
        self._output = bytearray()
        self._head: re.Match[bytes] | None = None
        self._start = self._end = 0

    def take(self, chunk: bytes) -> bytes | None:
        """The evidence document, once it is complete.

        Raises AnswerError if there is too much output or the document was altered.
        """
        size = len(self._output)
        self._output += chunk
        if self._head is None:
            self._search(max(0, size - _HEAD_LENGTH))
        if self._head is not None and len(self._output) >= self._end:
            return self._document(self._head)
        if len(self._output) > self._limit:
            raise AnswerError(f"more than {self._limit >> 20} MiB of output")
        return None

    def missing(self) -> str:
        """Why there is no document, after the end of the output."""
        if self._head is None:
            return "no evidence in the response"
        received, expected = len(self._output) - self._start, self._end - self._start
        return f"truncated response: {received} of {expected} bytes"

    @property
    def output(self) -> bytes:
        """The whole stdout of the node so far."""
        return bytes(self._output)

    @property
    def has_begun(self) -> bool:
        return self._head is not None

    def _search(self, start: int) -> None:
        heads = _HEAD.finditer(bytes(memoryview(self._output)[start:]))
        match = next((head for head in heads if head[2] == self._nonce), None)
        if match is not None:
            self._head = match
            self._start = start + match.end()
            self._end = self._start + int(match[3])

    def _document(self, head: re.Match[bytes]) -> bytes:
        text = bytes(memoryview(self._output)[self._start : self._end])
        if _sha256(text).encode() != head[4]:
            raise AnswerError("corrupted response: its SHA-256 differs")
        return self._unpacked(text) if head[1] else text

    def _unpacked(self, packed: bytes) -> bytes:
        """Raises AnswerError, also for an answer that unpacks to more than the limit."""
        unpacking = zlib.decompressobj()
        try:
            text = unpacking.decompress(packed, self._limit + 1)
        except zlib.error as error:
            raise AnswerError("corrupted response: zlib cannot unpack it") from error
        if len(text) > self._limit:
            raise AnswerError(f"more than {self._limit >> 20} MiB of output")
        if not unpacking.eof or unpacking.unused_data:
            raise AnswerError("corrupted response: zlib cannot unpack it")
        return text


def _sha256(data: bytes) -> str:
    """Uses OpenSSL, which is many times as fast, if it is already loaded, as with SSH."""
    module: Any = sys.modules.get("hashlib", digest)
    return str(module.sha256(data).hexdigest())
