"""What parent and child processes say to each other: frames. Pure.

A frame is its head, one line of JSON that gives the length of its body, then so many bytes,
untouched. Line ends may stand between frames: what passes on whole lines alone, as srun does, holds
no frame back that one follows. A batch child gets one frame, its order, and answers with one for
each host. A worker child gets an order too, then requests, and gives one answer to each.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

HEAD_LIMIT = 1 << 24  # bytes; the largest is an order: 5,000 hosts, a few hundred bytes each
ANSWER_HEAD = 1 << 16  # bytes of the head of an answer
SLACK = 1 << 20  # bytes of a body beyond what one node may have written
LONGEST = 10 * 86400  # seconds of one visit
INPUT_LIMIT = 1 << 26  # bytes of a body that a child takes: the payload, or an action's content


class FrameError(ValueError):
    """What no parent and no child writes; the message says why."""


@dataclass(frozen=True)
class Frame:
    head: Mapping[str, Any]
    body: bytes = b""


def write_frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    return json.dumps({**head, "bytes": len(body)}).encode() + b"\n" + body


class FrameReader:
    """Splits what came into frames, of which a body has at most `limit` bytes."""

    def __init__(self, limit: int, head: int = HEAD_LIMIT) -> None:
        self._limit = limit
        self._head_limit = head
        self._text = bytearray()
        self._searched = 0  # bytes of a head that is not whole
        self._head: dict[str, Any] | None = None
        self._size = 0  # of its body

    def take(self, chunk: bytes) -> Iterator[Frame]:
        """Each whole frame. Raises FrameError."""
        self._text += chunk
        while self._take_head() and len(self._text) >= self._size:
            head, self._head = self._head, None
            body = bytes(memoryview(self._text)[: self._size])
            del self._text[: self._size]
            yield Frame(head or {}, body)

    def _take_head(self) -> bool:
        """Whether there is a head."""
        if self._head is not None:
            return True
        while self._text.startswith(b"\n"):
            del self._text[:1]
        end = self._text.find(b"\n", self._searched)
        self._searched = 0 if end >= 0 else len(self._text)
        if max(end, self._searched) > self._head_limit:
            raise FrameError(f"a head of more than {self._head_limit:,} bytes")
        if end < 0:
            return False
        try:
            head = json.loads(self._text[:end])
        except (ValueError, RecursionError) as error:
            raise FrameError(f"a head that is not JSON: {error}") from error
        size = head.pop("bytes", None) if isinstance(head, dict) else None
        if type(size) is not int or not 0 <= size <= self._limit:
            raise FrameError(f"not the length of a body: {str(size)[:20]}")
        del self._text[: end + 1]
        self._head, self._size = head, size
        return True


def read_frame(text: bytes, limit: int = INPUT_LIMIT) -> Frame:
    """The one frame that a text is. Raises FrameError."""
    frames = list(FrameReader(limit).take(text))
    if len(frames) != 1:
        raise FrameError(f"{len(frames)} whole frames; there must be one")
    return frames[0]


@dataclass(frozen=True)
class SshTarget:
    """One host, as a child needs it. `number` is its place in the parent's list."""

    number: int
    name: str
    address: str | None
    port: int | None
    user: str | None
    key_file: str | None
    known_hosts: str | None
    root: str
    python: str | None
    sudo: bool
    whole_machine: bool = False
    asks: int = 0  # which of the order's


@dataclass(frozen=True)
class BatchOrder:
    """What one child is to do. Times in seconds; see nodevet.fleet.Options."""

    parallel: int
    connect_timeout: float
    deadline: float
    probe_deadline: float
    ssh_config: str | None
    known_hosts: str | None
    accept_new: bool
    max_output: int
    targets: tuple[SshTarget, ...] = ()
    payload: bytes = b""
    sample: float = 0.0
    asks: Sequence[Mapping[str, Sequence[Any]]] = ({},)  # by section; each different one once

    @property
    def body_limit(self) -> int:
        """Bytes of a body that the child may write."""
        return self.max_output + SLACK


@dataclass(frozen=True)
class VisitOutcome:
    """How one visit ended; `status` as in nodevet.model.Status."""

    status: str
    why: str = ""
    evidence: bytes = b""
    seconds: float = 0.0
    again: bool = False  # whether another try may find it otherwise


@dataclass(frozen=True)
class SessionRequest:
    """What the session of one host is to do; `body` goes with it: an action."""

    host: int
    do: str
    seconds: float
    fenced: bool
    arguments: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class SessionAnswer:
    """What came of a request. `status` as of WorkError, or locked; empty if it was done."""

    status: str = ""
    why: str = ""
    result: Any = None
    body: bytes = b""  # a document, as the node wrote it


def write_order(order: BatchOrder) -> bytes:
    head = {name: value for name, value in asdict(order).items() if name != "payload"}
    return write_frame(head, order.payload)


def read_order(frame: Frame) -> BatchOrder:
    head = dict(frame.head)
    targets = tuple(SshTarget(**target) for target in head.pop("targets"))
    return BatchOrder(**head, targets=targets, payload=frame.body)


def write_outcome(number: int, outcome: VisitOutcome) -> bytes:
    seconds = round(outcome.seconds, 3)
    head = {
        "number": number, "status": outcome.status, "why": outcome.why, "seconds": seconds,
        **({"again": True} if outcome.again else {}),
    }  # fmt: skip
    return write_frame(head, outcome.evidence)


def read_outcome(frame: Frame) -> tuple[int, VisitOutcome]:
    """The host's number, and its outcome. Raises KeyError and TypeError."""
    head = frame.head
    number, status, why, seconds = (head[name] for name in ("number", "status", "why", "seconds"))
    again = head.get("again", False)
    texts = isinstance(status, str) and isinstance(why, str)
    if not texts or type(number) is not int or type(again) is not bool:
        raise TypeError("an outcome of another form")
    if not isinstance(seconds, (int, float)) or not 0 <= seconds <= LONGEST:
        raise TypeError("an outcome that took no valid time")
    return number, VisitOutcome(status, why, frame.body, seconds, again)


def write_request(number: int, request: SessionRequest) -> bytes:
    head = {
        "id": number,
        "host": request.host,
        "do": request.do,
        "seconds": request.seconds,
        "fenced": request.fenced,
        "arguments": request.arguments,
    }
    return write_frame(head, request.body)


def read_request(frame: Frame) -> tuple[int, SessionRequest]:
    head = dict(frame.head)
    return head.pop("id"), SessionRequest(**head, body=frame.body)


def write_answer(number: int, answer: SessionAnswer) -> bytes:
    head = {
        "id": number, "status": answer.status, "why": answer.why, "result": answer.result,
    }  # fmt: skip
    return write_frame(head, answer.body)


def read_answer(frame: Frame) -> tuple[int, SessionAnswer]:
    """The request's number, and its answer. Raises KeyError and TypeError."""
    head = dict(frame.head)
    return head.pop("id"), SessionAnswer(**head, body=frame.body)
