"""The types of nodevet.remote's answers on a node. Decoding is validation. Pure.

A node's answers are hostile: every list, mapping and text has a bound, numbers have a range, and an
answer of any other form is refused with a message.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from nodevet.base import typed
from nodevet.base.bounds import Text
from nodevet.base.printable import brief, plain
from nodevet.resource import Resource, State, kind_of

Form = TypeVar("Form")

REASON_LIMIT = 500  # characters of a reason
MANAGERS = Meta(max_length=4096)  # places that set one thing
AGENTS = 64  # most configuration managers of one node


class MalformedError(Exception):
    """An answer that cannot be used; the message says why."""


class _StateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    exists: bool
    value: Any
    why: Text


class LockAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Our lock, with the data that actions under it need; or its present holder."""

    held: bool
    path: Text
    acting: Text = ""
    python: Text = ""
    who: Text = ""
    since: Text = ""
    running: Text = ""

    def __post_init__(self) -> None:
        if self.held and not (self.acting and self.python):
            raise ValueError("a lock without the data that actions under it need")


class RunningAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration manager that works on a node."""

    name: Text
    every_s: Annotated[int, Meta(gt=0, le=1 << 32)] | None = None  # None: not known


class _RefusedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    error: str


class _ResultAnswer(msgspec.Struct, frozen=True, kw_only=True):
    result: msgspec.Raw


def result(document: bytes) -> bytes:
    """The JSON of the result in a node's answer.

    Raises MalformedError, with the node's words if it reports an error.
    """
    try:
        return bytes(_decode(document, _ResultAnswer).result)
    except MalformedError:
        refused = _decode(document, _RefusedAnswer)
    raise MalformedError(brief(refused.error, REASON_LIMIT))


def states(document: bytes, resources: Sequence[Resource]) -> tuple[State, ...]:
    """The states of these resources, in their order. Raises MalformedError."""
    replies = _answers_to(document, tuple[_StateAnswer, ...], resources)
    return tuple(map(_state, resources, replies))


def _state(resource: Resource, answer: _StateAnswer) -> State:
    if answer.why:
        value = None  # nothing is known of a resource that could not be read
    elif answer.exists or answer.value is not None:
        try:
            typed.convert(answer.value, kind_of(resource).form)
        except (msgspec.ValidationError, RecursionError) as error:
            raise MalformedError(_malformed(f"{resource.label}: {error}")) from error
        value = answer.value
    else:
        value = None
    return State(resource=resource, exists=answer.exists, value=value, why=plain(answer.why))


def managers(document: bytes, resources: Sequence[Resource]) -> dict[str, tuple[str, ...]]:
    """Who else would set each resource: label -> places. Raises MalformedError."""
    lists = _answers_to(document, tuple[Annotated[tuple[Text, ...], MANAGERS], ...], resources)
    pairs = zip(resources, lists, strict=True)
    return {resource.label: tuple(map(plain, places)) for resource, places in pairs}


def agents(document: bytes) -> tuple[RunningAgent, ...]:
    """The configuration managers on the node. Raises MalformedError."""
    running: tuple[RunningAgent, ...] = _decode(document, tuple[RunningAgent, ...])
    if len(running) > AGENTS:
        raise MalformedError(_malformed(f"{len(running)} configuration managers"))
    return tuple(replace(agent, name=plain(agent.name)) for agent in running)


def lock(document: bytes) -> LockAnswer:
    """Raises MalformedError."""
    return _decode(document, LockAnswer)


def _answers_to(
    document: bytes, form: type[tuple[Form, ...]], resources: Sequence[Resource]
) -> Sequence[Form]:
    replies = _decode(document, form)
    if len(replies) != len(resources):
        raise MalformedError(_malformed(f"{len(replies)} answers to {len(resources)} questions"))
    return replies


def _decode(document: bytes, form: type[Form]) -> Form:
    try:
        return typed.decode(document, form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(_malformed(str(error))) from error


def _malformed(why: str) -> str:
    return f"malformed response: {brief(why, REASON_LIMIT)}"
