"""The records of a run's journal. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from nodevet.fixing.result import Approval
from nodevet.resource import State

SCHEMA = 3
EARLIEST = 2  # of a run whose first record does not say
LONGEST_OUTPUT = 4096  # bytes of a command's output that are kept: its end


class JournalError(Exception):
    """A journal cannot be created, read or written; the message says why and what to do."""


class Stamped(msgspec.Struct, frozen=True, kw_only=True, tag_field="is"):
    """One record. `write` sets `at`, ISO 8601 in UTC, and `prev`: sha256 of the line before,
    or of the plan's digest in the first line."""

    at: str = ""
    prev: str = ""


class RunBegin(Stamped, frozen=True, kw_only=True, tag="run-begin"):
    """A controller begins the run: the first record, and another at each resume or rollback."""

    schema: int = SCHEMA  # of this record and those after it
    kind: str = "apply"  # or rollback
    hosts: tuple[str, ...] = ()  # that are to be rolled back
    nodevet: str = ""  # its version
    started: str = ""  # ISO 8601, by the controller's own clock and offset
    plan: str  # sha256 of the plan file
    path: str
    approvals: tuple[Approval, ...] = ()
    options: Mapping[str, Any] = {}
    user: str = ""  # who is at the controller
    controller: str  # its host name
    pid: int
    boot_id: str = ""  # of the controller


class HostBegin(Stamped, frozen=True, kw_only=True, tag="host-begin"):
    """A node begins, or begins again after a resume or its reboot."""

    host: str
    machine_id: str
    boot_id: str
    uptime_s: float | None = None
    hook: tuple[str, ...] | None = None  # what the drain hook offers; None: it was not called
    asked: str = ""  # the next request: reboot; or soft off, off, on to its BMC
    controller_s: float | None = None  # uptime of the controller at that request


class StepLooked(Stamped, frozen=True, kw_only=True, tag="step-looked"):
    """The states of a step's resources: before its first action, and after its actions."""

    step: str
    seen: tuple[State, ...]


class ActionBegin(Stamped, frozen=True, kw_only=True, tag="action-begin"):
    """An action is about to be sent to the node; `action` is its index in the step."""

    step: str
    action: int


class ActionEnd(Stamped, frozen=True, kw_only=True, tag="action-end"):
    step: str
    action: int
    ok: bool
    code: int | None = None
    output: str = ""  # the last `LONGEST_OUTPUT` bytes


class StepVerified(Stamped, frozen=True, kw_only=True, tag="step-verified"):
    """The check says ok, on evidence that was read after the actions."""

    step: str
    pending: bool = False  # it will say ok once the setting is in force
    verdicts: Mapping[str, str] = {}  # subject -> verdict


class StepFailed(Stamped, frozen=True, kw_only=True, tag="step-failed"):
    step: str
    why: str


class ActionUnknown(Stamped, frozen=True, kw_only=True, tag="action-unknown"):
    """The end of an action is unknown."""

    step: str
    action: int
    why: str


class StepReverting(Stamped, frozen=True, kw_only=True, tag="step-reverting"):
    """A step is about to be reverted; until `StepReverted` its outcome is unknown."""

    step: str
    again: bool = False  # it was interrupted, did not fail, and may begin again after this
    found: tuple[State, ...] = ()  # its resources when a rollback began


class StepReverted(Stamped, frozen=True, kw_only=True, tag="step-reverted"):
    """The step is as it was before (ok), or is not, and why."""

    step: str
    ok: bool
    why: str = ""
    seen: tuple[State, ...] = ()  # its resources at the end of a rollback
    waits: str = ""  # what brings it into force, `a reboot`; empty: it is in force
    boot_id: str = ""  # of the node, if it waits
    uptime_s: float | None = None


class StepEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a step of a node ended; its states and actions have records of their own."""

    id: str
    outcome: str
    why: str = ""
    verdicts: Mapping[str, str] = {}


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of a check after its fix, on evidence from after the last change of the node."""

    check: str
    asked: str  # when that evidence was asked for, ISO 8601 in UTC
    at: str  # when it had come
    machine_id: str
    keys: tuple[str, ...] = ()  # Finding.key of all findings that are ok
    subjects: tuple[str, ...] = ()  # labels of its steps' subjects, all of them ok


class HostEnd(Stamped, frozen=True, kw_only=True, tag="host-end"):
    """How a node ended, in one try of an apply or a rollback."""

    host: str
    outcome: str
    why: str = ""
    refusal: str = ""
    canary: bool = False
    rebooted: bool = False
    seconds: float = 0.0
    steps: tuple[StepEnd, ...] = ()
    proofs: tuple[Proof, ...] = ()
    given_back: bool = False  # the drain hook gave it back


class RunEnd(Stamped, frozen=True, kw_only=True, tag="run-end"):
    """The controller ended by itself. `outcome`: its exit code."""

    outcome: str
    stopped: str = ""  # why no further node was begun
    unknown: str = ""  # why the run as a whole is
    seconds: float = 0.0


JournalRecord = (
    RunBegin
    | HostBegin
    | StepLooked
    | ActionBegin
    | ActionEnd
    | StepVerified
    | StepFailed
    | ActionUnknown
    | StepReverting
    | StepReverted
    | HostEnd
    | RunEnd
)

StepRecord = (
    StepLooked
    | ActionBegin
    | ActionEnd
    | StepVerified
    | StepFailed
    | ActionUnknown
    | StepReverting
    | StepReverted
)
