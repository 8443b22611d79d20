"""The types of fixes: a change as data that nodevet can show, sign and roll back.

A fix is pure: it returns actions. A plan holds the very actions that will run, so people approve
exactly what happens.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from nodevet.base import typed
from nodevet.model import Finding, Value
from nodevet.resource import Actions, Resource

EVERY = "*"
"""In `Fix.after`: all other fixes."""


class Risk(str, Enum):
    """What a change needs of a node; ordered by `rank`."""

    LIVE = "live"  # nothing: jobs may run
    IDLE = "idle"  # no process on the GPUs that are changed
    DRAIN = "drain"  # no job on the node, and none that could start
    REBOOT = "reboot"  # drained, and it reboots

    @property
    def rank(self) -> int:
        return list(Risk).index(self)


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What one fix would do on one node."""

    expected: Value
    actual: Value
    unit: str = ""  # of both: W, MHz
    subjects: tuple[str, ...] = ()  # labels of the findings that it repairs: `GPU 4`
    actions: Actions
    keep: Actions = ()
    """Actions that keep the change at later boots. They run after the plan's reboot, once the
    check passes; without that, nodevet reverts the change. They may run twice."""
    resources: tuple[Resource, ...]
    """Everything that the actions change; nodevet reads each before, and can restore it."""
    risk: Risk
    gpus: tuple[str, ...] = ()  # UUIDs that must be free at risk idle; empty: all
    effective: str = "now"  # now, restart, reset, reboot: when the expected value is in force
    services: tuple[str, ...] = ()
    """Services that the change is about, as a binding to NUMA nodes is. The check judges their
    processes, whatever their pids; these do not count as users of a GPU.
    """
    note: str = ""  # for the person who approves

    @property
    def all_actions(self) -> Actions:
        return (*self.actions, *self.keep)


class FixError(Exception):
    """This fix cannot repair what fails on this node; the message says why."""


Planner = Callable[..., Iterator[PlannedChange]]
"""(evidence, failed findings of its check, the check's Params) -> changes. Pure. There is at least
one such finding.

Takes each option of the fix as a keyword, `restart=True`. Raises FixError, also during iteration:
then nodevet makes none of its changes."""


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy for one check; its file has the check's name."""

    plan: Planner
    risk: Risk  # the highest that its changes have
    options: tuple[str, ...] = ()
    """now, restart: what a user may request beyond the baseline. reboot: given if the plan reboots
    each changed node."""
    after: tuple[str, ...] | None = None
    """Fixes that run before this one on a node, if they are in the plan. `EVERY`: all fixes that
    do not have `EVERY` too. None: after all fixes that have a tuple here. Ties: by name."""
    asks: Callable[[Any], Mapping[str, tuple[Any, ...]]] | None = None
    """The check's Params -> what the probe must also read for the fix, names by section."""

    @property
    def follows(self) -> tuple[str, ...]:
        """The fixes that `after` names."""
        return tuple(name for name in self.after or () if name != EVERY)

    @property
    def rank(self) -> int:
        """0: `after` names fixes; 1: `after` is None; 2: `after` has `EVERY`."""
        return 1 if self.after is None else 2 if EVERY in self.after else 0

    @property
    def problem(self) -> str:
        """Why nodevet cannot use this fix, whatever it plans; empty if it can."""
        if not isinstance(self.risk, Risk):
            return f"its risk {self.risk!r} is not a Risk, such as Risk.LIVE"
        for field, names in (("after", self.after or ()), ("options", self.options)):
            if not (isinstance(names, tuple) and all(isinstance(name, str) for name in names)):
                return f"its `{field}` {names!r} is not a tuple of names, such as ('swap',)"
        return ""

    def changes(
        self, evidence: Any, findings: Sequence[Finding], params: Any, options: Collection[str] = ()
    ) -> Iterator[PlannedChange]:
        """The changes that `plan` yields, decoded as from the file of a plan; none if no finding
        fails. `options` that this fix does not have are ignored. Raises as `plan` does, and
        TypeError or ValueError for a change that no plan can hold."""
        if not findings:
            return
        keywords = {name: name in options for name in self.options}
        for change in self.plan(evidence, findings, params, **keywords):
            if not isinstance(change, PlannedChange):
                raise TypeError(f"it plans {type(change).__name__}, which is not a PlannedChange")
            yield typed.decode(msgspec.json.encode(change), PlannedChange)


def join_notes(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def with_refusals(
    changes: Sequence[PlannedChange], refused: Sequence[str]
) -> Iterator[PlannedChange]:
    """The changes, the first with a note of the refusals. Raises FixError if there is none."""
    if not changes:
        raise FixError("; ".join(refused))
    note = f"not in the plan: {'; '.join(refused)}" if refused else ""
    for number, change in enumerate(changes):
        yield change if number else replace(change, note=join_notes(change.note, note))
