"""The nouns of putting right: what a fix would do, as data that can be shown, signed and undone.

A fix is pure up to its actions. A plan holds the very actions that will run, so what is
approved is what happens; `fixes/_perform.py` turns them into pyinfra's commands.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import Any

import msgspec

from nodevet.model import Finding, Value


class Risk(str, Enum):
    """What a change asks of a node; ordered by `rank`."""

    LIVE = "live"  # nothing: jobs may run
    IDLE = "idle"  # no process on the GPUs that are touched
    DRAIN = "drain"  # no job on the node, and none that could start
    REBOOT = "reboot"  # drained, and it reboots

    @property
    def rank(self) -> int:
        return list(Risk).index(self)


class Resource(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing whose earlier state is kept before it is changed."""

    kind: str
    """file, kernel (a path of /sys or /proc/sys), unit, gpu, module, package, process, swap."""
    name: str
    """/etc/tmpfiles.d/x.conf; /sys/...; x.service; GPU-<uuid>:power_limit_mw; nouveau; ..."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a touch was when it was looked at: enough to put it back."""

    resource: Resource
    exists: bool
    value: Any = None
    """file: {content (base64), mode, owner, group}; kernel: text; unit: {enabled, active,
    masked, fragment}; gpu: text as NVML has it; module: {loaded, brings}; package: {version,
    held, automatic}; process: {cpus, mems}; swap: {active, fstab}."""
    why: str = ""  # why it could not be looked at


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", tag=str.lower):
    """One thing that is done on a node, whole."""


class File(Action, frozen=True, kw_only=True):
    """A file of the disk is this, or is not there."""

    path: str
    content: str | None  # None: removed
    mode: int = 0o644
    owner: int = 0  # uid
    group: int = 0  # gid


class Kernel(Action, frozen=True, kw_only=True):
    """One write to a file of /sys or /proc/sys."""

    path: str
    value: str


class Unit(Action, frozen=True, kw_only=True):
    """The state of a systemd unit; None leaves that part as it is."""

    name: str
    enabled: bool | None = None
    running: bool | None = None
    restart: bool = False  # where it runs; `reload` of systemd itself comes before, always
    masked: bool | None = None


class Run(Action, frozen=True, kw_only=True, omit_defaults=True):
    """A command, word by word, without a shell."""

    words: tuple[str, ...]
    seconds: int | None = None  # that it may take, where that is more than for any action


Actions = tuple[File | Kernel | Unit | Run, ...]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What one fix would do on one node."""

    wanted: Value
    observed: Value
    unit: str = ""  # of both: W, MHz
    subjects: tuple[str, ...] = ()  # labels of the findings it answers: `GPU 4`
    actions: Actions
    resources: tuple[Resource, ...]
    """Everything that the actions change; each is looked at before and can be put back."""
    risk: Risk
    gpus: tuple[str, ...] = ()  # UUIDs that must be free at risk idle; empty: all
    effective: str = "now"  # now, restart, reset, reboot: when the wanted value is in force
    services: tuple[str, ...] = ()
    """Services whose binding and such is what this is about: the check is asked about their
    processes, whatever their numbers are by then, and they are no users of a GPU to wait for."""
    note: str = ""  # what the person who approves should know


class FixError(Exception):
    """What is wrong cannot be put right by this fix on this node; the message says why."""


Planner = Callable[..., Iterator[Change]]
"""(evidence, wrong findings of its check, the check's Want) -> changes. Pure.

Takes each option of the fix as a keyword, `restart=True`. Raises FixError, also while it is
iterated: then none of its changes is to be made."""


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy for one check; its file has the check's name."""

    plan: Planner
    risk: Risk  # the highest that its changes have
    options: tuple[str, ...] = ()  # now, restart: what a person may ask of it beyond the want

    def changes(
        self, evidence: Any, findings: Sequence[Finding], want: Any, options: Collection[str] = ()
    ) -> Iterator[Change]:
        """What `plan` yields with those of the `options` that this fix has. Raises as it does."""
        chosen = {name: name in options for name in self.options}
        return self.plan(evidence, findings, want, **chosen)
