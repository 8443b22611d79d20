"""The records of a run's journal, and what they mean together. Pure."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from nodevet.base.printable import brief
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


class Stage(str, Enum):
    """The progress of a step."""

    NOT_ATTEMPTED = "not attempted"  # no action was begun, or all is reverted and forgotten
    UNKNOWN = "unknown"  # an action, or reverting, was begun and its end is not known
    WRITTEN = "written"  # the actions in `done` succeeded; the check has not said ok
    VERIFIED = "verified"
    FAILED = "failed"  # `why`; where `touched`, its actions are still in place
    ROLLED_BACK = "rolled back"


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a run."""

    stage: Stage = Stage.NOT_ATTEMPTED
    touched: bool = False
    """An action began, and the step has not been reverted since, or its revert is not in force."""
    seen: tuple[State, ...] | None = None
    """The states before the first action, which a rollback restores. None: never read."""
    after: tuple[State, ...] | None = None  # the same, as last looked at since
    doing: int | None = None  # the action whose end is not known
    done: tuple[int, ...] = ()  # the actions that ended well, since the last rollback
    rolling_back: bool = False  # it began to be reverted, and the end is not known
    again: bool = False  # and the step may be begun again after that
    verdicts: Mapping[str, str] = {}
    why: str = ""
    pending: bool = False  # verified, and not in force yet
    boot_id: str = ""  # of the node, when the first action was begun
    uptime_s: float | None = None  # of the node, before that
    waits: str = ""  # what brings the restored state into force; empty: it is in force
    back_boot_id: str = ""  # of the node, when it was reverted and waited
    back_uptime_s: float | None = None


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a run, as it was when it was last begun; `outcome` is None while it goes on."""

    machine_id: str = ""
    boot_id: str = ""
    uptime_s: float | None = None
    outcome: str | None = None
    why: str = ""
    hook: tuple[str, ...] | None = None
    """What the drain hook offers, which was called and has not given the node back."""
    asked: str = ""  # reboot, soft off, off or on, of this boot
    asked_at: str = ""  # ISO 8601 in UTC

    @property
    def is_taken(self) -> bool:
        """Whether the drain hook may have drained the node and has not given it back."""
        return self.hook is not None and (bool(self.hook) or self.outcome is None)


class JournalState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run."""

    run: RunBegin | None = None  # as it began; None: killed before its first record
    resumed: int = 0
    hosts: Mapping[str, HostState] = {}
    steps: Mapping[str, StepState] = {}
    outcome: str | None = None  # None: it goes on, or was killed

    def step(self, id: str) -> StepState:
        return self.steps.get(id, StepState())

    def host(self, name: str) -> HostState | None:
        """None if the node was not begun."""
        return self.hosts.get(name)


def state(records: Iterable[JournalRecord]) -> JournalState:
    """The state of the run after these records. Raises JournalError if they name two plans."""
    run: RunBegin | None = None
    resumed, outcome = 0, None
    hosts: dict[str, HostState] = {}
    steps: dict[str, StepState] = {}
    for record in records:
        if isinstance(record, RunBegin):
            if run is not None and record.plan != run.plan:
                raise JournalError(
                    f"the journal is of plan {brief(run.plan)} and of "
                    f"{brief(record.plan)}; a run has one plan"
                )
            resumed += run is not None
            run, outcome = run or record, None
        elif isinstance(record, HostBegin):
            earlier = hosts.get(record.host)
            hosts[record.host] = HostState(
                machine_id=record.machine_id,
                boot_id=record.boot_id,
                uptime_s=record.uptime_s,
                hook=record.hook if record.hook is not None or not earlier else earlier.hook,
            )
            last = record if record.asked else earlier
            if last and last.asked and last.boot_id == record.boot_id:
                at = record.at if record.asked else earlier.asked_at if earlier else ""
                hosts[record.host] = msgspec.structs.replace(
                    hosts[record.host], asked=last.asked, asked_at=at
                )
        elif isinstance(record, HostEnd):
            before = hosts.get(record.host, HostState())
            hosts[record.host] = msgspec.structs.replace(
                before, outcome=record.outcome, why=record.why
            )
            if record.given_back:
                hosts[record.host] = msgspec.structs.replace(hosts[record.host], hook=None)
        elif isinstance(record, RunEnd):
            outcome = record.outcome
        else:
            step_before = steps.get(record.step, StepState())
            step_after = _step_after(step_before, record)
            if step_after.touched and not step_before.touched:
                node = hosts.get(record.step.rsplit("/", 2)[0], HostState())
                step_after = msgspec.structs.replace(
                    step_after, boot_id=node.boot_id, uptime_s=node.uptime_s
                )
            steps[record.step] = step_after
    return JournalState(run=run, resumed=resumed, hosts=hosts, steps=steps, outcome=outcome)


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


def _step_after(step: StepState, record: StepRecord) -> StepState:
    def state_with(**changes: Any) -> StepState:
        return msgspec.structs.replace(step, **changes)

    if isinstance(record, StepLooked):
        # what is seen once an action was begun is not the earlier state
        return state_with(after=record.seen) if step.touched else StepState(seen=record.seen)
    if isinstance(record, (ActionBegin, ActionUnknown)):
        why = record.why if isinstance(record, ActionUnknown) else ""
        doing = record.action
        return state_with(
            stage=Stage.UNKNOWN,
            touched=True,
            after=None,
            doing=doing,
            rolling_back=False,
            why=why,
        )
    if isinstance(record, ActionEnd):
        return _after_action(step, record)
    if isinstance(record, StepVerified):
        return state_with(
            stage=Stage.VERIFIED,
            doing=None,
            verdicts=record.verdicts,
            pending=record.pending,
            why="",
        )
    if isinstance(record, StepFailed):
        return state_with(stage=Stage.FAILED, why=record.why)
    if isinstance(record, StepReverting):
        return state_with(
            stage=Stage.UNKNOWN,
            touched=True,
            done=(),
            rolling_back=True,
            again=record.again,
            why="",
        )
    if record.ok and step.again:
        return StepState()
    if record.ok and record.waits:  # touched: a later rollback looks whether it is in force
        return state_with(
            stage=Stage.ROLLED_BACK,
            done=(),
            rolling_back=False,
            why=record.why,
            waits=record.waits,
            back_boot_id=record.boot_id,
            back_uptime_s=record.uptime_s,
        )
    if record.ok:
        return StepState(stage=Stage.ROLLED_BACK, seen=step.seen, why=record.why)
    return state_with(stage=Stage.FAILED, rolling_back=False, why=record.why)


def _after_action(step: StepState, record: ActionEnd) -> StepState:
    doing = None if step.doing == record.action else step.doing
    done = tuple(action for action in step.done if action != record.action)
    stage, why = (Stage.WRITTEN if doing is None else Stage.UNKNOWN), ""
    if record.ok:
        done = (*done, record.action)
    else:
        stage, why = Stage.FAILED, f"action {record.action} failed with code {record.code}"
    return msgspec.structs.replace(step, stage=stage, touched=True, doing=doing, done=done, why=why)
