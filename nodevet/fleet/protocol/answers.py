"""The typed form of what nodevet.remote answers on a node. Decoding is validation. Pure.

What a node says is hostile: every list, mapping and text has a bound, numbers have a range, and
an answer of any other form is refused with a sentence.
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

TOLD = 500  # characters of a reason
MANAGERS = Meta(max_length=4096)  # places that set one thing
AGENTS = 64  # configuration managers of one node


class MalformedError(Exception):
    """An answer that cannot be used; the message says why."""


class _StateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    exists: bool
    value: Any
    why: Text


class LockAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that is held, with what the actions under it need; or not, and who has it."""

    held: bool
    path: Text
    acting: Text = ""
    python: Text = ""
    who: Text = ""
    since: Text = ""
    running: Text = ""

    def __post_init__(self) -> None:
        if self.held and not (self.acting and self.python):
            raise ValueError("a lock without what actions under it need")


class RunningAgent(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration manager that works on a node."""

    name: Text
    every_s: Annotated[int, Meta(gt=0, le=1 << 32)] | None = None  # None: it is not said


class _RefusedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    error: str


class _ResultAnswer(msgspec.Struct, frozen=True, kw_only=True):
    result: msgspec.Raw


def result(document: bytes) -> bytes:
    """The JSON of what was found on the node.

    Raises MalformedError, with the node's words if it says why nothing was found.
    """
    try:
        return bytes(_decoded(document, _ResultAnswer).result)
    except MalformedError:
        refused = _decoded(document, _RefusedAnswer)
    raise MalformedError(brief(refused.error, TOLD))


def looked(found: bytes, resources: Sequence[Resource]) -> tuple[State, ...]:
    """The states of these resources, in their order. Raises MalformedError."""
    told = _each(found, tuple[_StateAnswer, ...], resources)
    return tuple(_seen(resource, each) for resource, each in zip(resources, told, strict=True))


def _seen(resource: Resource, told: _StateAnswer) -> State:
    if told.why:
        value = None  # of what could not be read, no part is known
    elif told.exists or told.value is not None:
        try:
            typed.convert(told.value, kind_of(resource).form)
        except (msgspec.ValidationError, RecursionError) as error:
            raise MalformedError(_malformed(f"{resource.label}: {error}")) from error
        value = told.value
    else:
        value = None
    return State(resource=resource, exists=told.exists, value=value, why=plain(told.why))


def managers(found: bytes, resources: Sequence[Resource]) -> dict[str, tuple[str, ...]]:
    """Who else would set each resource: label -> places. Raises MalformedError."""
    told = _each(found, tuple[Annotated[tuple[Text, ...], MANAGERS], ...], resources)
    pairs = zip(resources, told, strict=True)
    return {resource.label: tuple(map(plain, each)) for resource, each in pairs}


def agents(found: bytes) -> tuple[RunningAgent, ...]:
    """The configuration managers that work there. Raises MalformedError."""
    told: tuple[RunningAgent, ...] = _decoded(found, tuple[RunningAgent, ...])
    if len(told) > AGENTS:
        raise MalformedError(_malformed(f"{len(told)} configuration managers"))
    return tuple(replace(each, name=plain(each.name)) for each in told)


def lock(found: bytes) -> LockAnswer:
    """Raises MalformedError."""
    return _decoded(found, LockAnswer)


def _each(
    found: bytes, form: type[tuple[Form, ...]], resources: Sequence[Resource]
) -> Sequence[Form]:
    told = _decoded(found, form)
    if len(told) != len(resources):
        raise MalformedError(_malformed(f"{len(told)} answers to {len(resources)} questions"))
    return told


def _decoded(document: bytes, form: type[Form]) -> Form:
    try:
        return typed.decode(document, form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(_malformed(str(error))) from error


def _malformed(why: str) -> str:
    return f"malformed response: {brief(why, TOLD)}"
