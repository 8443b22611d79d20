"""The frames between parent and child processes. Pure.

A frame is a head, one line of JSON that gives the length of the body, then the body's bytes. Line
ends may separate frames, so that a program that passes on only whole lines, such as srun, holds no
frame back. A batch child gets one frame, its order, and answers with one frame for each host. A
worker child gets an order too, then requests, and gives one answer to each.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from nodevet.base import typed
from nodevet.base.printable import brief, plain

HEAD_LIMIT = 1 << 24  # bytes; the largest is an order: 5,000 hosts, a few hundred bytes each
ANSWER_HEAD = 1 << 16  # bytes of the head of an answer
SLACK = 1 << 20  # bytes of a body beyond one node's output
LONGEST = 10 * 86400  # seconds of one visit
INPUT_LIMIT = 1 << 26  # bytes of a body for a child: the payload, or an action's content

Form = TypeVar("Form")
Number = Annotated[int, Meta(ge=0, lt=1 << 31)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST)]


class FrameError(ValueError):
    """Malformed input, which no parent and no child writes; the message says why."""


@dataclass(frozen=True)
class Frame:
    head: Mapping[str, Any]
    body: bytes = b""


def write_frame(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    return json.dumps({**head, "bytes": len(body)}).encode() + b"\n" + body


class FrameReader:
    """Splits input into frames. A body has at most `limit` bytes."""

    def __init__(self, limit: int, head: int = HEAD_LIMIT) -> None:
        self._limit = limit
        self._head_limit = head
        self._text = bytearray()
        self._searched = 0  # bytes of an incomplete head
        self._head: dict[str, Any] | None = None
        self._size = 0  # of its body

    def take(self, chunk: bytes) -> Iterator[Frame]:
        """Each complete frame. Raises FrameError."""
        self._text += chunk
        while self._take_head() and len(self._text) >= self._size:
            head, self._head = self._head, None
            body = bytes(memoryview(self._text)[: self._size])
            del self._text[: self._size]
            yield Frame(head or {}, body)

    def _take_head(self) -> bool:
        """Whether a head is complete."""
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
    """The only frame of a text. Raises FrameError."""
    frames = list(FrameReader(limit).take(text))
    if len(frames) != 1:
        raise FrameError(f"{len(frames)} whole frames; there must be one")
    return frames[0]


@dataclass(frozen=True)
class SshTarget:
    """One host for a child. `number`: its place in the parent's list."""

    number: Number
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
    asks: Number = 0  # place in the order's `asks`


@dataclass(frozen=True)
class BatchOrder:
    """The work of one child. Times in seconds; see nodevet.fleet.Options."""

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
    verbose: bool = False  # outcomes have steps
    asks: Sequence[Mapping[str, Sequence[Any]]] = ({},)  # different ones, each by section
    sections: tuple[str, ...] = ()  # to read; none: all

    def __post_init__(self) -> None:
        if any(target.asks >= len(self.asks) for target in self.targets):
            raise ValueError("a host refers to a request that the order lacks")

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
    again: bool = False  # whether another try may succeed
    steps: tuple[str, ...] = ()  # what SSH did


@dataclass(frozen=True)
class SessionRequest:
    """A request to the session of one host. `body`: an action."""

    host: Number
    do: str
    seconds: Seconds
    fenced: bool
    arguments: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


class ActResult(msgspec.Struct, frozen=True):
    """How an action ended on a node."""

    ok: bool
    code: int  # 124 or 137: its time limit ended it
    output: str  # the end of its stdout, then of its stderr; printable


class LockHolder(msgspec.Struct, frozen=True):
    """The holder of a node's lock, since when, and a process that runs under it."""

    who: str
    since: str
    running: str


@dataclass(frozen=True)
class SessionAnswer:
    """The answer to a request. `status`: as of WorkError, locked, gone, or "" if it was done."""

    status: str = ""
    why: str = ""
    result: ActResult | LockHolder | str | None = None
    body: bytes = b""  # a document, as the node wrote it


RESULTS: Mapping[str, Any] = {"act": ActResult, "lock": str, "reboot": str}  # else: None


Steps = Annotated[tuple[Annotated[str, Meta(max_length=2000)], ...], Meta(max_length=100)]


class _OutcomeHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: Number
    status: Literal["vetted", "unreachable", "not_visited", "timeout", "probe_failed"]
    why: str
    seconds: Seconds
    again: bool = False
    steps: Steps = ()


class LostHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host for which a launcher has no answer, and why."""

    lost: Number
    why: str


class LauncherRefusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason why a launcher visits no host."""

    refused: str


class Beat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sign of life, in either direction."""

    beat: bool = True


Notice = Beat | LostHost | LauncherRefusal
NOTICES: Mapping[str, type[Notice]] = {"beat": Beat, "lost": LostHost, "refused": LauncherRefusal}


class _RequestHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Number
    host: Number
    do: str
    seconds: Seconds
    fenced: bool
    arguments: dict[str, Any]


class _AnswerHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Number
    status: Literal["", "unreachable", "timeout", "lost", "failed", "locked"]
    why: str
    result: Any


def _typed(value: object, form: type[Form]) -> Form:
    """Raises FrameError."""
    try:
        return typed.convert(value, form)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FrameError(brief(error, 200)) from error


def write_order(order: BatchOrder) -> bytes:
    head = {name: value for name, value in asdict(order).items() if name != "payload"}
    return write_frame(head, order.payload)


def read_order(frame: Frame) -> BatchOrder:
    """Raises FrameError."""
    return replace(_typed(frame.head, BatchOrder), payload=frame.body)


def write_outcome(number: int, outcome: VisitOutcome) -> bytes:
    seconds = round(outcome.seconds, 3)
    head = {
        "number": number, "status": outcome.status, "why": outcome.why, "seconds": seconds,
        **({"again": True} if outcome.again else {}),
        **({"steps": outcome.steps} if outcome.steps else {}),
    }  # fmt: skip
    return write_frame(head, outcome.evidence)


def read_outcome(frame: Frame) -> tuple[int, VisitOutcome]:
    """The host's number, and its outcome. Raises FrameError."""
    head = _typed(frame.head, _OutcomeHead)
    why = plain(head.why)
    steps = tuple(map(plain, head.steps))
    return head.number, VisitOutcome(head.status, why, frame.body, head.seconds, head.again, steps)


def write_notice(notice: Notice) -> bytes:
    return write_frame(msgspec.to_builtins(notice))


def read_notice(frame: Frame) -> Notice | None:
    """A notice, or None if the frame is an order or an outcome. Raises FrameError."""
    form = next((form for word, form in NOTICES.items() if word in frame.head), None)
    return None if form is None else _typed(frame.head, form)


def write_request(number: int, request: SessionRequest) -> bytes:
    head = {"id": number, **asdict(replace(request, body=b""))}
    del head["body"]
    return write_frame(head, request.body)


def read_request(frame: Frame) -> tuple[int, SessionRequest]:
    """The request's number, and the request. Raises FrameError."""
    head = _typed(frame.head, _RequestHead)
    return head.id, SessionRequest(
        head.host, head.do, head.seconds, head.fenced, head.arguments, frame.body
    )


def write_answer(number: int, answer: SessionAnswer) -> bytes:
    head = {
        "id": number,
        "status": answer.status,
        "why": answer.why,
        "result": msgspec.to_builtins(answer.result),
    }
    return write_frame(head, answer.body)


def read_answer(frame: Frame, operations: Mapping[int, str]) -> tuple[int, SessionAnswer]:
    """The request's number, and its answer. `asked`: the operation of each request, by number.

    Raises FrameError, also for an answer to no request.
    """
    head = _typed(frame.head, _AnswerHead)
    if head.id not in operations:
        raise FrameError(f"an answer to no request: {head.id}")
    form: Any = None
    if head.status == "locked":
        form = LockHolder
    elif not head.status:
        form = RESULTS.get(operations[head.id])
    return head.id, SessionAnswer(
        head.status, plain(head.why), _typed(head.result, form), frame.body
    )
