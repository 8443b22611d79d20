"""What a baseline expects of a node, and what it waives."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import msgspec

from nodevet.model import Finding, Severity, Value, show


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """One check with what a baseline expects of it."""

    check: str
    params: Any  # the check's own Params
    severity: Severity
    origin: str  # file:line
    fix: bool = False
    origins: Mapping[str, str] = {}  # field of the params -> file:line


CUT = "…"
"""The end of a reason that was too long."""


class Waiver(msgspec.Struct, frozen=True, kw_only=True):
    """A failed finding that a named person accepted until a date (inclusive).

    It holds for the value that was accepted, not for a worse one that comes later.
    """

    check: str
    owner: str
    reason: str
    until: date
    accepts: Value = None  # what was found when it was accepted; None: nothing, or `any`
    any: bool = False  # every value
    hosts: frozenset[str] | None = None  # None: every host
    subject: str | None = None  # a Subject label, UUID or bus id; None: every subject
    origin: str = ""

    def covers(self, host: str, finding: Finding) -> bool:
        """Whether it covers this finding, expired or not, with any value."""
        if finding.check != self.check or (self.hosts is not None and host not in self.hosts):
            return False
        subject = finding.subject
        names = {name for name in (subject.label, subject.uuid, subject.bus_id) if name}
        return self.subject is None or self.subject in names

    def admits(self, finding: Finding) -> bool:
        """Whether the finding has the accepted value; for a finding without values, the accepted
        reason, if it is complete.
        """
        if self.any or self.accepts is None:
            return self.any
        if finding.expected is finding.actual is None:
            return show(self.accepts) == finding.why and not finding.why.endswith(CUT)
        return _admits(self.accepts, finding.actual, finding.expected, finding.unit)


def _admits(accepted: Value, actual: Value, expected: Value, unit: str) -> bool:
    """Whether an actual value is the accepted one, as data or as reports show it.

    The order of a list is of no account. In a mapping, values that are not accepted must be as
    expected.
    """
    if isinstance(actual, Mapping) and isinstance(accepted, Mapping):
        return all(
            _admits(accepted[key], item, None, unit)
            if key in accepted
            else _is_same(item, expected.get(key) if isinstance(expected, Mapping) else expected)
            for key, item in actual.items()
        )
    if isinstance(actual, (list, tuple)) and isinstance(accepted, (list, tuple)):
        return sorted(map(show, actual)) == sorted(map(show, accepted))
    return show(accepted) in (show(actual), f"{show(actual)} {unit}")


def _is_same(one: Value, other: Value) -> bool:
    """Whether two values are equal and of one type: 1 is not true."""
    return type(one) is type(other) and bool(one == other)


class GpuMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs a baseline is for. Ids as `10de:2330`; an empty tuple matches any."""

    devices: tuple[str, ...] = ()
    subsystems: tuple[str, ...] = ()
    count: int | None = None


class Applies(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes a baseline is for. Every part that is given must match."""

    hosts: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    gpu: GpuMatch | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline after `extends`: what is expected of a node, each part with its origin."""

    name: str
    path: str
    title: str = ""
    sha256: str = ""  # over every file that went into it
    applies: Applies | None = None
    expectations: tuple[Expectation, ...] = ()
    allow_commands: bool = False  # whether its checks may have commands run, `Check.runs`
    allow_file_text: bool = False  # whether rules may ask about the text of private files
    waivers: tuple[Waiver, ...] = ()
    lineage: tuple[str, ...] = ()  # paths of the files that it extends
    replaces: str = ""  # its file, if it has the name of a shipped baseline; ./: of the project

    @property
    def label(self) -> str:
        """Its name in reports; with its file if a shipped baseline has the same name."""
        return f"{self.name} ({self.replaces})" if self.replaces else self.name
