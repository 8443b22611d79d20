"""The nouns of fixes: what one would do, as data that can be shown, signed and rolled back.

A fix is pure up to its actions. A plan holds the very actions that will run, so what is
approved is what happens.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from nodevet.base import typed
from nodevet.model import Finding, Value
from nodevet.resource import Actions, Resource

EVERY = "*"
"""In `Fix.after`: all other fixes."""


class Risk(str, Enum):
    """What a change asks of a node; ordered by `rank`."""

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
    subjects: tuple[str, ...] = ()  # labels of the findings it answers: `GPU 4`
    actions: Actions
    resources: tuple[Resource, ...]
    """Everything that the actions change; each is read before, and can be restored."""
    risk: Risk
    gpus: tuple[str, ...] = ()  # UUIDs that must be free at risk idle; empty: all
    effective: str = "now"  # now, restart, reset, reboot: when the expected value is in force
    services: tuple[str, ...] = ()
    """Services whose binding and such is what this is about: the check is asked about their
    processes, whatever their pids are by then, and these do not count as users of a GPU."""
    note: str = ""  # what the person who approves should know


class FixError(Exception):
    """This fix cannot repair what fails on this node; the message says why."""


Planner = Callable[..., Iterator[PlannedChange]]
"""(evidence, failed findings of its check, the check's Params) -> changes. Pure.

Takes each option of the fix as a keyword, `restart=True`. Raises FixError, also while it is
iterated: then none of its changes may be made."""


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy for one check; its file has the check's name."""

    plan: Planner
    risk: Risk  # the highest that its changes have
    options: tuple[str, ...] = ()  # now, restart: what a person may ask of it beyond the baseline
    after: tuple[str, ...] | None = None
    """Fixes that a node takes before this one, each if it is in the plan; `EVERY` for all that do
    not say so too. None: anywhere after those that say where they come. Else by name."""
    asks: Callable[[Any], Mapping[str, tuple[Any, ...]]] | None = None
    """Of the check's parameters: what the probe must be told to read for it, names by section."""

    @property
    def follows(self) -> tuple[str, ...]:
        """The fixes that `after` names."""
        return tuple(name for name in self.after or () if name != EVERY)

    @property
    def rank(self) -> int:
        """Fixes that say where they come, then those that do not, then those that come last."""
        return 1 if self.after is None else 2 if EVERY in self.after else 0

    @property
    def problem(self) -> str:
        """Why it cannot be used, whatever it plans; empty if it can."""
        if not isinstance(self.risk, Risk):
            return f"its risk {self.risk!r} is not a Risk, as Risk.LIVE"
        for name, told in (("after", self.after or ()), ("options", self.options)):
            if not (isinstance(told, tuple) and all(isinstance(one, str) for one in told)):
                return f"its `{name}` {told!r} is not a tuple of names, as ('swap',)"
        return ""

    def changes(
        self, evidence: Any, findings: Sequence[Finding], params: Any, options: Collection[str] = ()
    ) -> Iterator[PlannedChange]:
        """What `plan` yields with those of the `options` that this fix has, as it comes out of the
        file of a plan. Raises as `plan` does, and TypeError or ValueError for what no plan can
        hold."""
        chosen = {name: name in options for name in self.options}
        for change in self.plan(evidence, findings, params, **chosen):
            if not isinstance(change, PlannedChange):
                raise TypeError(f"it plans {type(change).__name__}, which is not a PlannedChange")
            yield typed.decode(msgspec.json.encode(change), PlannedChange)
