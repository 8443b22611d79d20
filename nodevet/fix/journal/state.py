"""The state of a run, its hosts and its steps, from the records of its journal. Pure."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from nodevet.base.printable import brief
from nodevet.fix.journal.records import (
    ActionBegin,
    ActionEnd,
    ActionUnknown,
    HostBegin,
    HostEnd,
    JournalError,
    JournalRecord,
    RunBegin,
    RunEnd,
    StepFailed,
    StepLooked,
    StepRecord,
    StepReverting,
    StepVerified,
)
from nodevet.resource import State


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
    controller_s: float | None = None  # uptime of the controller at that request
    controller_boot: str = ""  # its boot id then

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
    resumed, outcome, controller_boot = 0, None, ""
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
            run, outcome, controller_boot = run or record, None, record.boot_id
        elif isinstance(record, HostBegin):
            earlier = hosts.get(record.host)
            hosts[record.host] = HostState(
                machine_id=record.machine_id,
                boot_id=record.boot_id,
                uptime_s=record.uptime_s,
                hook=record.hook if record.hook is not None or not earlier else earlier.hook,
            )
            if record.asked:
                hosts[record.host] = msgspec.structs.replace(
                    hosts[record.host],
                    asked=record.asked,
                    controller_s=record.controller_s,
                    controller_boot=controller_boot,
                )
            elif earlier and earlier.boot_id == record.boot_id:
                hosts[record.host] = msgspec.structs.replace(
                    hosts[record.host],
                    asked=earlier.asked,
                    controller_s=earlier.controller_s,
                    controller_boot=earlier.controller_boot,
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
            stage=Stage.UNKNOWN, touched=True, after=None, doing=doing, rolling_back=False, why=why
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
