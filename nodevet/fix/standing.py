"""The status of a run of fixes, by the records of its journal. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

import msgspec

from nodevet.base.printable import brief
from nodevet.fix.journal.journal import JournalRecord
from nodevet.fix.journal.owner import Controller
from nodevet.fix.journal.records import (
    ActionBegin,
    ActionEnd,
    ActionUnknown,
    HostBegin,
    HostEnd,
    RunBegin,
    RunEnd,
    StepReverted,
    StepReverting,
    StepVerified,
)
from nodevet.fix.journal.state import state as journal_state
from nodevet.fix.model import Plan
from nodevet.fix.moments import parse_time
from nodevet.fixing.result import HostResult, Outcome, Result

GOES_ON = 4  # exit code


class RunStanding(str, Enum):
    """Whether a run goes on."""

    GOES_ON = "goes on"
    ENDED = "ended"
    INTERRUPTED = "interrupted"  # no end in its journal, and its controller is gone
    UNKNOWN = "unknown"  # no end in its journal, and whether its controller is gone is not known


class InHand(msgspec.Struct, frozen=True, kw_only=True):
    """A host that has a beginning but no end in the journal."""

    host: str
    number: int = 0  # of the step, from 1; 0: none was begun
    steps: int = 0
    fix: str = ""
    doing: str = ""
    at: str = ""  # ISO 8601 in UTC: the host's last record


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a run."""

    folder: str
    standing: RunStanding
    controller: str  # where it is, or why that is not known
    begun: str  # ISO 8601: the last try
    by: str  # who began that
    last: str  # ISO 8601: the last record
    result: Result  # by the journal, as if its controller were gone
    in_hand: tuple[InHand, ...] = ()
    inventories: tuple[str, ...] = ()  # by which its hosts are reached; none: by their names
    expired: bool = False  # the plan, by now
    drained: tuple[str, ...] = ()  # hosts that its drain hook took and did not give back

    @property
    def exit_code(self) -> int:
        """The exit code of the run if it ended; 4 while it goes on; 3 if it was interrupted."""
        if self.standing is RunStanding.GOES_ON:
            return GOES_ON
        return self.result.exit_code if self.standing is RunStanding.ENDED else 3

    @property
    def waiting(self) -> tuple[HostResult, ...]:
        """The hosts that the run has not started."""
        started = {host.host for host in self.in_hand}
        return tuple(
            host
            for host in self.result.requested_hosts
            if host.outcome is Outcome.NOT_ATTEMPTED and host.host not in started
        )


STATUS_SCHEMA = 1


class StatusAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run of fixes, as `nodevet status --format json` prints it."""

    schema: int = STATUS_SCHEMA
    folder: str
    standing: RunStanding
    exit_code: int  # of `nodevet status`: that of the run if it ended; 4 while it goes on
    controller: str  # where it is, or why that is not known; empty if the run ended
    begun: str  # ISO 8601: the last try
    by: str  # who began that
    last: str  # ISO 8601: the last record
    in_hand: tuple[InHand, ...]  # hosts that were begun and have no end
    waiting: tuple[str, ...]  # hosts that a run that goes on has not begun
    inventories: tuple[str, ...]  # by which its hosts are reached; none: by their names
    result: Result  # by the journal, as if its controller were gone
    drained: tuple[str, ...] = ()  # hosts that its drain hook took and did not give back


def answer(status: RunStatus) -> StatusAnswer:
    """The status as `--format json` prints it."""
    is_running = status.standing is RunStanding.GOES_ON
    return StatusAnswer(
        folder=status.folder,
        standing=status.standing,
        exit_code=status.exit_code,
        controller=status.controller,
        begun=status.begun,
        by=status.by,
        last=status.last,
        in_hand=status.in_hand,
        waiting=tuple(host.host for host in status.waiting) if is_running else (),
        inventories=status.inventories,
        result=status.result,
        drained=status.drained,
    )


def of_records(
    folder: Path,
    plan: Plan,
    records: Sequence[JournalRecord],
    result: Result,
    controller: tuple[Controller, str],
) -> RunStatus:
    """The status of a run; `controller`: whether it runs, and where."""
    starts = [place for place, record in enumerate(records) if isinstance(record, RunBegin)]
    start = records[starts[-1]]
    assert isinstance(start, RunBegin)  # noqa: S101  (for the type)
    this_try = records[starts[-1] :]
    has_end = isinstance(records[-1], RunEnd)
    controller_state, place_text = controller
    if controller_state is Controller.RUNNING:
        standing = RunStanding.GOES_ON
    elif has_end:
        standing, place_text = RunStanding.ENDED, ""
    else:
        standing = (
            RunStanding.INTERRUPTED if controller_state is Controller.GONE else RunStanding.UNKNOWN
        )
    return RunStatus(
        folder=str(folder),
        standing=standing,
        controller=place_text,
        begun=start.started or start.at,
        by=f"{start.user}@{start.controller}" if start.user else start.controller,
        last=records[-1].at,
        result=result,
        in_hand=() if has_end else tuple(in_hand(plan, this_try)),
        drained=tuple(name for name, host in journal_state(records).hosts.items() if host.is_taken),
    )


def in_hand(plan: Plan, records: Sequence[JournalRecord]) -> Iterator[InHand]:
    """The hosts that these records of one try begin and do not end."""
    hosts: dict[str, InHand] = {}
    steps = {step.id: step for step in plan.steps}
    for record in records:
        if isinstance(record, HostBegin):
            hosts[record.host] = InHand(
                host=record.host,
                steps=len(plan.host_steps(record.host)),
                doing=_begin_text(record),
                at=record.at,
            )
        elif isinstance(record, HostEnd):
            hosts.pop(record.host, None)
        elif not isinstance(record, (RunBegin, RunEnd)) and (step := steps.get(record.step)):
            ids = [plan_step.id for plan_step in plan.host_steps(step.host)]
            hosts[step.host] = InHand(
                host=step.host,
                number=ids.index(step.id) + 1,
                steps=len(ids),
                fix=step.fix,
                doing=_activity(record),
                at=record.at,
            )
    yield from hosts.values()


def _begin_text(record: HostBegin) -> str:
    return f"asked for {brief(record.asked, 40)}" if record.asked else "begun"


def _activity(record: JournalRecord) -> str:
    if isinstance(record, ActionBegin):
        return "writing"
    if isinstance(record, ActionEnd):
        return "written" if record.ok else "failed"
    if isinstance(record, ActionUnknown):
        return "the end of an action is not known"
    if isinstance(record, StepVerified):
        return "verified"
    if isinstance(record, StepReverting):
        return "rolling back"
    if isinstance(record, StepReverted):
        return "rolled back" if record.ok else "rollback failed"
    return "looked at"


def seconds_since(at: str, now: datetime | None = None) -> float | None:
    """Seconds from a time in a journal until now; None if it is not a valid time."""
    time = parse_time(at)
    return ((now or datetime.now(timezone.utc)) - time).total_seconds() if time else None
