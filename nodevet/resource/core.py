"""What every kind of resource has in common: a name, a state, and actions that change it."""

from typing import Any

import msgspec


class Resource(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing whose earlier state is kept before it is changed."""

    kind: str
    """A module of this package: file, kernel (a path of /sys or /proc/sys), unit, gpu, ..."""
    name: str
    """/etc/tmpfiles.d/x.conf; /sys/...; x.service; GPU-<uuid>:power_limit_mw; nouveau; ..."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a resource was when it was read: enough to restore it."""

    resource: Resource
    exists: bool
    value: Any = None
    """JSON in the form that the resource's kind says; none of what could not be read."""
    why: str = ""  # it could not be read


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag=str.lower):
    """One thing that is done on a node, whole."""


class RunCommand(Action, frozen=True, kw_only=True, omit_defaults=True, tag="run"):
    """A command, word by word, without a shell."""

    words: tuple[str, ...]
    seconds: int | None = None  # that it may take, if that is more than for any action
