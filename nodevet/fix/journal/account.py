"""The result of a run, from its journal and its plan: the only source of its report. Pure.

What the journal leaves open is unknown: a missing end never counts as a good one, and what a later
try could not read stays as it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from nodevet.fix.journal import records as journal
from nodevet.fix.journal.records import HostEnd, JournalRecord, Proof, RunEnd, StepEnd
from nodevet.fix.journal.state import Stage, StepState, state
from nodevet.fix.model import Plan, Step
from nodevet.fix.rollout.ledger import new_result
from nodevet.fix.rollout.power import REBOOT
from nodevet.fixing.result import (
    BY_HAND,
    LEFT_OUT,
    HostResult,
    Outcome,
    Ran,
    Refusal,
    Result,
    StepResult,
    hosts_given,
    worst,
)
from nodevet.resource import State, is_same

OPEN = frozenset({Outcome.UNKNOWN, Outcome.ROLLBACK_FAILED, Outcome.NOT_ATTEMPTED})
"""Outcomes that a resumed run looks at again."""
PARTS = frozenset({Outcome.REFUSED, Outcome.PARTIAL})
PASSING = frozenset({Refusal.LOCKED, Refusal.UNREACHABLE})
"""Refusals for a reason that may pass; a resumed run looks at them again."""

UNKNOWN = frozenset({Outcome.ROLLBACK_FAILED, Outcome.UNKNOWN})
KILLED = "the controller ended while it worked on the node; how far it got is unknown"
SWITCHING = "the last request to its BMC was `{}`: if the power is off, a resume switches it on"
BEFORE_WRITING = "the controller ended before it wrote anything there"
STRANGE = f"the journal contradicts the plan: {BY_HAND}"
NOT_ATTEMPTED = "not attempted: the run changed nothing there, so there is nothing to roll back"
CLOSED = "the run was rolled back: plan again"


def host_end(
    result: HostResult,
    proofs: tuple[Proof, ...] = (),
    *,
    given_back: bool = False,
) -> HostEnd:
    """A node's result as a record of the journal, with the last verdicts of its checks."""
    return HostEnd(
        host=result.host,
        outcome=result.outcome.value,
        why=result.why,
        refusal=result.refusal.value if result.refusal else "",
        canary=result.canary,
        rebooted=result.rebooted,
        seconds=result.seconds,
        steps=tuple(
            StepEnd(id=step.id, outcome=step.outcome.value, why=step.why, verdicts=step.verdicts)
            for step in result.steps
        ),
        proofs=proofs,
        given_back=given_back,
    )


def account(
    plan: Plan, records: Sequence[JournalRecord], *, kind: str = "", folder: str = "RUN"
) -> Result:
    """The result with every node of the plan, and every node that only the journal names.

    `kind`: apply or rollback; empty: that of the last try. `folder`: of the run, for the command
    that resumes it. Raises JournalError if the journal is of two plans or of none.
    """
    return _Story(plan, records).result(kind, folder)


def finished_hosts(plan: Plan, records: Sequence[JournalRecord]) -> dict[str, HostResult]:
    """The nodes that a resumed run leaves as they are: in a known state, or rolled back."""
    story = _Story(plan, records)
    return {
        host.host: host
        for host in story.result("apply").hosts
        if host.host in story.named
        or (host.host in story.ends and host.outcome not in OPEN and host.refusal not in PASSING)
        or host.host in story.strange_hosts
    }


@dataclass
class StepRecords:
    """The records of one step, besides its state."""

    before: tuple[State, ...] = ()
    after: tuple[State, ...] = ()
    ran: list[tuple[int, Ran]] = field(default_factory=list)
    touched: bool = False
    moved: bool = False  # since the last end of its node
    end: StepEnd | None = None  # of the last try that was at it


class _Story:
    """A journal, read from its first record to its last."""

    def __init__(self, plan: Plan, records: Sequence[JournalRecord]) -> None:
        self.plan = plan
        self.state = state(records)
        if self.state.run is None:
            raise journal.JournalError("the journal has no record of a run")
        self.last = self.state.run
        self.only = hosts_given(self.state.run.options)  # hosts of the apply; None: all
        self.named: dict[str, None] = {}  # nodes that were to be rolled back
        self.asked: frozenset[str] = frozenset()  # of these, by the last try and not ended since
        self.ends: dict[str, HostEnd] = {}
        self.returned: set[str] = set()  # nodes whose end is that of a rollback
        self.idle: dict[str, HostEnd] = {}  # where the last rollback had nothing to revert
        self._steps = {step.id: step for step in plan.steps}
        self._told: dict[str, StepRecords] = {}
        self._open: set[str] = set()  # begun, and not ended
        self._strange: dict[str, dict[str, None]] = {}  # node -> what the plan does not know
        self._end: RunEnd | None = None
        self._at = ""
        for record in records:
            self._take(record)
        for step in plan.steps:
            if why := contradiction(step, self.state.step(step.id)):
                self._strange.setdefault(step.host, {})[f"{step.id}: {why}"] = None

    def _take(self, record: JournalRecord) -> None:
        self._at = record.at or self._at
        if isinstance(record, journal.RunBegin):
            self.last, self._end = record, None
            self.named |= dict.fromkeys(record.hosts)
            self.asked = frozenset(record.hosts)
            for host in record.hosts:
                self._note_stranger(host)
        elif isinstance(record, RunEnd):
            self._end = record
        elif isinstance(record, journal.HostBegin):
            self._note_stranger(record.host)
            self._open.add(record.host)
        elif isinstance(record, HostEnd):
            self._take_host_end(record)
        elif step := self._steps.get(record.step):
            self._open.add(step.host)
            self._of_step(step, record)
        else:
            self._strange.setdefault(record.step.partition("/")[0], {})[record.step] = None

    def _note_stranger(self, host: str) -> None:
        if host not in self.plan.nodes:
            self._strange.setdefault(host, {})

    def _take_host_end(self, record: HostEnd) -> None:
        self._note_stranger(record.host)
        self.asked -= {record.host}
        if self._rollback and record.outcome == Outcome.UNCHANGED.value:
            self.idle[record.host] = record  # how the node ended before that still holds
            return
        self.idle.pop(record.host, None)
        self._open.discard(record.host)
        self.ends[record.host] = record
        (self.returned.add if self._rollback else self.returned.discard)(record.host)
        for end in record.steps:
            step_records = self._told.get(end.id)
            if step_records and step_records.moved:
                step_records.end, step_records.moved = end, False

    def _of_step(self, step: Step, record: journal.StepRecord) -> None:
        step_records = self._told.setdefault(step.id, StepRecords())
        step_records.moved = True
        if isinstance(record, journal.StepLooked) and not step_records.touched:
            step_records.before, step_records.after, step_records.ran = record.seen, (), []
        elif isinstance(record, journal.StepLooked):
            step_records.after = record.seen
        elif isinstance(record, journal.ActionBegin):
            step_records.touched, step_records.after = True, ()
            if 0 <= record.action < len(step.all_actions):
                step_records.ran.append(
                    (record.action, Ran(action=step.all_actions[record.action], ok=None))
                )
            else:
                self._strange.setdefault(step.host, {})[f"{step.id}, action {record.action}"] = None
        elif isinstance(record, journal.ActionEnd):
            for place, (number, ran) in reversed([*enumerate(step_records.ran)]):
                if number == record.action:
                    ended_run = replace(ran, ok=record.ok, code=record.code, output=record.output)
                    step_records.ran[place] = (number, ended_run)
                    break
        elif isinstance(record, journal.StepReverting) and self._rollback:
            step_records.before, step_records.after, step_records.ran = record.found, (), []
        elif isinstance(record, journal.StepReverted):
            step_records.touched = step_records.touched and not record.ok
            step_records.after = (
                record.seen
                if self._rollback
                else step_records.before
                if record.ok
                else step_records.after
            )

    @property
    def _rollback(self) -> bool:
        return self.last.kind == "rollback"

    @property
    def strange_hosts(self) -> dict[str, str]:
        return {
            host: f"{', '.join(details) or 'this node'}: {STRANGE}"
            for host, details in self._strange.items()
        }

    # --- the results ----------------------------------------------------------------------------

    def result(self, kind: str, folder: str = "RUN") -> Result:
        kind, begin_record = kind or self.last.kind, self.last
        hosts = [self._host(host, kind) for host in self.plan.nodes]
        return Result(
            kind=kind,
            nodevet=begin_record.nodevet,
            plan=self.plan.id,
            digest=begin_record.plan,
            author=self.plan.author,
            approvals=begin_record.approvals,
            started=begin_record.started or begin_record.at,
            seconds=self._end.seconds if self._end else _seconds_between(begin_record.at, self._at),
            options=begin_record.options,
            stopped=self._end.stopped if self._end else "",
            unknown=self._end.unknown if self._end else _missing_end_text(kind, folder),
            hosts=(*hosts, *self._stranger_results()),
        )

    def _stranger_results(self) -> Iterator[HostResult]:
        """Nodes that the plan does not know, so their outcome is unknown."""
        for host, why in self.strange_hosts.items():
            if host not in self.plan.nodes:
                yield HostResult(host=host, outcome=Outcome.UNKNOWN, why=why)

    def _host(self, host: str, kind: str) -> HostResult:
        end, idle = self.ends.get(host), self.idle.get(host)
        unended = host in self._open or end is None
        if kind == "rollback" and idle and (unended or host in self.last.hosts):
            steps = tuple(new_result(step) for step in self.plan.host_steps(host))
            result = HostResult(host=host, outcome=Outcome.UNCHANGED, why=idle.why, steps=steps)
        elif end is None or unended:
            result = self._unended_result(host, kind)
        else:
            result = self._known_end(host, end, kind)
        if why := self.strange_hosts.get(host):
            why = "; ".join(filter(None, (why, result.why if result.why != why else "")))
            return replace(result, outcome=worst_of(result.outcome, Outcome.UNKNOWN), why=why)
        return result

    def _unended_result(self, host: str, kind: str) -> HostResult:
        """A node without an end: it was not begun, or the controller ended during its work."""
        steps = tuple(self._by_journal(step, kind) for step in self.plan.host_steps(host))
        outcome, why = (
            worst(step for step in steps if step.outcome is not Outcome.NOT_ATTEMPTED),
            "",
        )
        if outcome is not Outcome.UNCHANGED:
            is_reverted = outcome in (Outcome.FAILED, Outcome.ROLLED_BACK)  # all of it was reverted
            why = KILLED + self._power_text(host)
            outcome = outcome if is_reverted else worst_of(outcome, Outcome.UNKNOWN)
        elif kind == "rollback":
            why = NOT_ATTEMPTED
        elif not steps:
            why = "the plan has no step for it"
        else:
            outcome = Outcome.NOT_ATTEMPTED
            why = BEFORE_WRITING if host in self._open else self._stop_reason(host)
        return HostResult(host=host, outcome=outcome, why=why, steps=steps)

    def _power_text(self, host: str) -> str:
        """What the BMC of a node was asked for last, in this boot; empty if nothing."""
        host_state = self.state.host(host)
        asked = host_state.asked if host_state else ""
        is_of_bmc = asked not in ("", REBOOT)
        return f"; {SWITCHING.format(asked)}" if is_of_bmc else ""

    def _stop_reason(self, host: str) -> str:
        if host in self.named:
            return CLOSED
        if self.only is not None and host not in self.only:
            return LEFT_OUT
        return (self._end and self._end.stopped) or "the run ended before its turn"

    def _known_end(self, host: str, end: HostEnd, kind: str) -> HostResult:
        """A node that ended, in this try or an earlier one."""
        ends = {step_end.id: step_end for step_end in end.steps}
        steps = tuple(
            self._step(step, ends.get(step.id), kind) for step in self.plan.host_steps(host)
        )
        outcome, why = _outcome(end.outcome), end.why
        touched = any(self.state.step(step.id).touched for step in steps)
        if kind == "rollback" and host not in self.returned and not touched:
            outcome, why = Outcome.UNCHANGED, NOT_ATTEMPTED
        elif kind == "rollback" and host in self.asked:
            stopped = (self._end and self._end.stopped) or "the rollback ended before its turn"
            reason = f"{stopped}: the run's changes there remain"
            outcome, why = (
                worst_of(outcome, Outcome.NOT_ATTEMPTED),
                "; ".join(filter(None, (reason, why))),
            )
        elif kind == "apply" and host in self.returned:
            steps = tuple(_as_rolled_back(step) for step in steps)
            outcome = Outcome.ROLLED_BACK if outcome is Outcome.PENDING else outcome
            why = "; ".join(filter(None, ("by `nodevet rollback`", why)))
        for step in steps:
            if step.outcome in UNKNOWN and step.outcome.rank < outcome.rank:
                outcome, why = step.outcome, "; ".join(filter(None, (step.why, why)))
        return HostResult(
            host=host,
            outcome=outcome,
            why=why,
            refusal=Refusal(end.refusal) if outcome in PARTS and end.refusal else None,
            canary=end.canary,
            rebooted=end.rebooted,
            seconds=end.seconds,
            steps=steps,
        )

    def _step(self, step: Step, end: StepEnd | None, kind: str) -> StepResult:
        """A step of a node that ended; an unknown outcome stays unknown, whatever came later."""
        step_records = self._told.get(step.id)
        recorded = (
            self._by_journal(step, kind)
            if step_records and (step_records.moved or not step_records.end)
            else None
        )
        if step_records and step_records.end and not step_records.moved:
            recorded = self._step_result(step, _outcome(step_records.end.outcome), step_records.end)
            unjudged = self.state.step(step.id).stage in (Stage.UNKNOWN, Stage.WRITTEN)
            if unjudged and recorded.outcome not in UNKNOWN:
                recorded = replace(recorded, outcome=Outcome.UNKNOWN)
        is_untouched = kind == "apply" and end and end.outcome == Outcome.NOT_ATTEMPTED.value
        if end is None or (recorded and is_untouched):  # a rollback that left it as the apply had
            return recorded or new_result(step)
        ended = self._step_result(step, _outcome(end.outcome), end)
        if recorded and recorded.outcome in UNKNOWN and recorded.outcome.rank < ended.outcome.rank:
            return recorded
        return ended

    def _by_journal(self, step: Step, kind: str) -> StepResult:
        """A step by its own records, without an end of its node."""
        state = self.state.step(step.id)
        end = StepEnd(id=step.id, outcome="", why=state.why, verdicts=state.verdicts)
        return self._step_result(step, outcome_of_state(state, kind), end)

    def _step_result(self, step: Step, outcome: Outcome, end: StepEnd) -> StepResult:
        step_records = self._told.get(step.id) or StepRecords()
        return new_result(
            step,
            outcome=outcome,
            why=end.why,
            before=step_records.before,
            after=step_records.after,
            ran=tuple(ran for _, ran in step_records.ran),
            verdicts=end.verdicts,
        )


def _as_rolled_back(step: StepResult) -> StepResult:
    """The step in the words of an apply: a pending rollback counts as rolled back."""
    if step.outcome is Outcome.PENDING:
        return replace(step, outcome=Outcome.ROLLED_BACK)
    return step


def outcome_of_state(state: StepState, kind: str) -> Outcome:
    """The outcome of a step in a try without an end."""
    if state.stage is Stage.VERIFIED:
        return Outcome.PENDING if state.pending else Outcome.CHANGED
    if state.stage is Stage.ROLLED_BACK:
        if state.waits:
            return Outcome.PENDING
        return Outcome.ROLLED_BACK if kind == "rollback" else Outcome.FAILED
    if state.stage is Stage.FAILED and state.touched and state.doing is None:
        return Outcome.ROLLBACK_FAILED
    return Outcome.UNKNOWN if state.touched else Outcome.NOT_ATTEMPTED


def contradiction(step: Step, state: StepState) -> str:
    """Why the journal's earlier states of a step contradict the plan; empty if they do not."""
    if state.seen is None:
        return ""
    if [earlier.resource for earlier in state.seen] != list(step.resources):
        return "the journal's earlier state does not match the plan's settings"
    planned = {earlier.resource: earlier for earlier in step.before}
    for earlier in state.seen:
        planned_state = planned.get(earlier.resource)
        if planned_state is not None and not is_same(planned_state, earlier):
            return f"{earlier.resource.label} was not what the plan says that it was"
    return ""


def contradictory_hosts(plan: Plan, records: Sequence[JournalRecord]) -> dict[str, str]:
    """Nodes on which journal and plan contradict each other, and why; they are not visited."""
    return _Story(plan, records).strange_hosts


def worst_of(*outcomes: Outcome) -> Outcome:
    """The worst of these."""
    return min(outcomes, key=lambda outcome: outcome.rank)


def _outcome(word: str) -> Outcome:
    """An outcome in the journal; UNKNOWN for a word that this nodevet does not know."""
    try:
        return Outcome(word)
    except ValueError:
        return Outcome.UNKNOWN


def _missing_end_text(kind: str, folder: str) -> str:
    again = "nodevet rollback" if kind == "rollback" else "nodevet apply --resume"
    return (
        f"its journal has no end of the {kind}: its controller was killed or still runs; go on "
        f"with `{again} {folder}`"
    )


def _seconds_between(first: str, last: str) -> float:
    """Seconds between two times of a journal; 0 if they are not valid."""
    try:
        return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
