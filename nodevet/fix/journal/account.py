"""What a run came to, by its journal and its plan: the one source of its report. Pure.

What the journal leaves open is unknown here: an end that was not written down is never taken for a
good one, and whatever a later try could not look at stays what it was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from nodevet.fix.journal import records as journal
from nodevet.fix.journal.records import (
    HostEnd,
    JournalRecord,
    Proof,
    RunEnd,
    Stage,
    StepEnd,
    StepState,
)
from nodevet.fix.model import Plan, Step
from nodevet.fix.rollout.step_results import begin
from nodevet.fixing.result import (
    BY_HAND,
    LEFT_OUT,
    HostResult,
    Outcome,
    Ran,
    Refusal,
    Result,
    StepResult,
    chosen_of,
    worst,
)
from nodevet.resource import State, same

OPEN = frozenset({Outcome.UNKNOWN, Outcome.ROLLBACK_FAILED, Outcome.NOT_ATTEMPTED})
"""What a resumed run looks at again,"""
PARTS = frozenset({Outcome.REFUSED, Outcome.PARTIAL})
PASSING = frozenset({Refusal.LOCKED, Refusal.UNREACHABLE})
"""and what was refused for a reason that passes."""

UNKNOWN = frozenset({Outcome.ROLLBACK_FAILED, Outcome.UNKNOWN})
KILLED = "the controller ended while it worked on the node: how far it got is not known"
BEFORE_WRITING = "the controller ended before anything was written there"
STRANGE = f"so says the journal, and not the plan: {BY_HAND}"
NOT_ATTEMPTED = "not attempted: the run changed nothing there, so there is nothing to roll back"
CLOSED = "the run was rolled back: plan again"


def host_end(result: HostResult, proofs: tuple[Proof, ...] = ()) -> HostEnd:
    """A node's result as the journal keeps it, with what its checks said at the end."""
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
    )


def account(
    plan: Plan, records: Sequence[JournalRecord], *, kind: str = "", folder: str = "RUN"
) -> Result:
    """Every node of the plan, and every one that only the journal speaks of.

    `kind`: apply or rollback, whose words are used; empty: that of the last try. `folder`: of the
    run, for the command that goes on with it.
    Raises JournalError if the journal is of two plans or of none.
    """
    return _Story(plan, records).result(kind, folder)


def settled(plan: Plan, records: Sequence[JournalRecord]) -> dict[str, HostResult]:
    """The nodes that a resumed run leaves as they are: in a known state, or rolled back."""
    story = _Story(plan, records)
    return {
        host.host: host
        for host in story.result("apply").hosts
        if host.host in story.named
        or (host.host in story.ends and host.outcome not in OPEN and host.refusal not in PASSING)
        or host.host in story.strange
    }


@dataclass
class _Told:
    """What the records of one step say, besides its state."""

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
        self.state = journal.state(records)
        if self.state.run is None:
            raise journal.JournalError("the journal has no record of a run")
        self.last = self.state.run
        self.only = chosen_of(self.state.run.options)  # hosts of the apply; None: all
        self.named: dict[str, None] = {}  # nodes that were to be rolled back
        self.asked: frozenset[str] = frozenset()  # of these, by the last try and not ended since
        self.ends: dict[str, HostEnd] = {}
        self.returned: set[str] = set()  # nodes whose end is that of a rollback
        self.idle: dict[str, HostEnd] = {}  # where the last rollback had nothing to revert
        self._steps = {step.id: step for step in plan.steps}
        self._told: dict[str, _Told] = {}
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
                self._known(host)
        elif isinstance(record, RunEnd):
            self._end = record
        elif isinstance(record, journal.HostBegin):
            self._known(record.host)
            self._open.add(record.host)
        elif isinstance(record, HostEnd):
            self._ended(record)
        elif step := self._steps.get(record.step):
            self._open.add(step.host)
            self._of_step(step, record)
        else:
            self._strange.setdefault(record.step.partition("/")[0], {})[record.step] = None

    def _known(self, host: str) -> None:
        if host not in self.plan.nodes:
            self._strange.setdefault(host, {})

    def _ended(self, record: HostEnd) -> None:
        self._known(record.host)
        self.asked -= {record.host}
        if self._rollback and record.outcome == Outcome.UNCHANGED.value:
            self.idle[record.host] = record  # how the node ended before that still holds
            return
        self.idle.pop(record.host, None)
        self._open.discard(record.host)
        self.ends[record.host] = record
        (self.returned.add if self._rollback else self.returned.discard)(record.host)
        for end in record.steps:
            told = self._told.get(end.id)
            if told and told.moved:
                told.end, told.moved = end, False

    def _of_step(self, step: Step, record: journal.StepRecord) -> None:
        told = self._told.setdefault(step.id, _Told())
        told.moved = True
        if isinstance(record, journal.StepLooked) and not told.touched:
            told.before, told.after, told.ran = record.seen, (), []
        elif isinstance(record, journal.StepLooked):
            told.after = record.seen
        elif isinstance(record, journal.ActionBegin):
            told.touched, told.after = True, ()
            if 0 <= record.action < len(step.actions):
                told.ran.append((record.action, Ran(action=step.actions[record.action], ok=None)))
            else:
                self._strange.setdefault(step.host, {})[f"{step.id}, action {record.action}"] = None
        elif isinstance(record, journal.ActionEnd):
            for place, (number, ran) in reversed([*enumerate(told.ran)]):
                if number == record.action:
                    done = replace(ran, ok=record.ok, code=record.code, output=record.output)
                    told.ran[place] = (number, done)
                    break
        elif isinstance(record, journal.StepReverting) and self._rollback:
            told.before, told.after, told.ran = record.found, (), []
        elif isinstance(record, journal.StepReverted):
            told.touched = told.touched and not record.ok
            told.after = record.seen if self._rollback else told.before if record.ok else told.after

    @property
    def _rollback(self) -> bool:
        return self.last.kind == "rollback"

    @property
    def strange(self) -> dict[str, str]:
        return {
            host: f"{', '.join(what) or 'this node'}: {STRANGE}"
            for host, what in self._strange.items()
        }

    # --- what it came to -----------------------------------------------------------------------

    def result(self, kind: str, folder: str = "RUN") -> Result:
        kind, first = kind or self.last.kind, self.last
        hosts = [self._host(host, kind) for host in self.plan.nodes]
        return Result(
            kind=kind,
            nodevet=first.nodevet,
            plan=self.plan.id,
            digest=first.plan,
            author=self.plan.author,
            approvals=first.approvals,
            started=first.started or first.at,
            seconds=self._end.seconds if self._end else _between(first.at, self._at),
            options=first.options,
            stopped=self._end.stopped if self._end else "",
            unknown=self._end.unknown if self._end else _unended(kind, folder),
            hosts=(*hosts, *self._strangers()),
        )

    def _strangers(self) -> Iterator[HostResult]:
        """Nodes that the plan does not know: what was to be done there is unknown."""
        for host, why in self.strange.items():
            if host not in self.plan.nodes:
                yield HostResult(host=host, outcome=Outcome.UNKNOWN, why=why)

    def _host(self, host: str, kind: str) -> HostResult:
        end, idle = self.ends.get(host), self.idle.get(host)
        unended = host in self._open or end is None
        if kind == "rollback" and idle and (unended or host in self.last.hosts):
            steps = tuple(begin(step) for step in self.plan.of(host))
            found = HostResult(host=host, outcome=Outcome.UNCHANGED, why=idle.why, steps=steps)
        elif end is None or unended:
            found = self._unended(host, kind)
        else:
            found = self._known_end(host, end, kind)
        if why := self.strange.get(host):
            why = "; ".join(filter(None, (why, found.why if found.why != why else "")))
            return replace(found, outcome=min_of(found.outcome, Outcome.UNKNOWN), why=why)
        return found

    def _unended(self, host: str, kind: str) -> HostResult:
        """A node without an end: it was not begun, or the controller ended while it was."""
        steps = tuple(self._by_journal(step, kind) for step in self.plan.of(host))
        outcome, why = (
            worst(step for step in steps if step.outcome is not Outcome.NOT_ATTEMPTED),
            "",
        )
        if outcome is not Outcome.UNCHANGED:
            known = outcome in (Outcome.FAILED, Outcome.ROLLED_BACK)  # all of it was reverted
            why = KILLED
            outcome = outcome if known else min_of(outcome, Outcome.UNKNOWN)
        elif kind == "rollback":
            why = NOT_ATTEMPTED
        elif not steps:
            why = "the plan has no step for it"
        else:
            outcome = Outcome.NOT_ATTEMPTED
            why = BEFORE_WRITING if host in self._open else self._stopped(host)
        return HostResult(host=host, outcome=outcome, why=why, steps=steps)

    def _stopped(self, host: str) -> str:
        if host in self.named:
            return CLOSED
        if self.only is not None and host not in self.only:
            return LEFT_OUT
        return (self._end and self._end.stopped) or "the run ended before its turn"

    def _known_end(self, host: str, end: HostEnd, kind: str) -> HostResult:
        """A node that ended, in this try or an earlier one."""
        ends = {each.id: each for each in end.steps}
        steps = tuple(self._step(step, ends.get(step.id), kind) for step in self.plan.of(host))
        outcome, why = _outcome(end.outcome), end.why
        touched = any(self.state.step(step.id).touched for step in steps)
        if kind == "rollback" and host not in self.returned and not touched:
            outcome, why = Outcome.UNCHANGED, NOT_ATTEMPTED
        elif kind == "rollback" and host in self.asked:
            stopped = (self._end and self._end.stopped) or "the rollback ended before its turn"
            waits = f"{stopped}: what the run did there is still there"
            outcome, why = (
                min_of(outcome, Outcome.NOT_ATTEMPTED),
                "; ".join(filter(None, (waits, why))),
            )
        elif kind == "apply" and host in self.returned:
            steps = tuple(_not_pending(step) for step in steps)
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
        """A step of a node that ended; what is not known of it stays so, whatever came later."""
        told = self._told.get(step.id)
        known = self._by_journal(step, kind) if told and (told.moved or not told.end) else None
        if told and told.end and not told.moved:
            known = self._filled(step, _outcome(told.end.outcome), told.end)
            unjudged = self.state.step(step.id).stage in (Stage.UNKNOWN, Stage.WRITTEN)
            if unjudged and known.outcome not in UNKNOWN:
                known = replace(known, outcome=Outcome.UNKNOWN)
        unmoved = kind == "apply" and end and end.outcome == Outcome.NOT_ATTEMPTED.value
        if end is None or (known and unmoved):  # a rollback that left it as the apply had
            return known or begin(step)
        said = self._filled(step, _outcome(end.outcome), end)
        if known and known.outcome in UNKNOWN and known.outcome.rank < said.outcome.rank:
            return known
        return said

    def _by_journal(self, step: Step, kind: str) -> StepResult:
        """A step by what the records of it say, and no end of its node."""
        state = self.state.step(step.id)
        end = StepEnd(id=step.id, outcome="", why=state.why, verdicts=state.verdicts)
        return self._filled(step, of_state(state, kind), end)

    def _filled(self, step: Step, outcome: Outcome, end: StepEnd) -> StepResult:
        told = self._told.get(step.id) or _Told()
        return begin(
            step,
            outcome=outcome,
            why=end.why,
            before=told.before,
            after=told.after,
            ran=tuple(ran for _, ran in told.ran),
            verdicts=end.verdicts,
        )


def _not_pending(step: StepResult) -> StepResult:
    """In the words of an apply: what waits there is what was before it."""
    if step.outcome is Outcome.PENDING:
        return replace(step, outcome=Outcome.ROLLED_BACK)
    return step


def of_state(state: StepState, kind: str) -> Outcome:
    """How a step stands where no try that was at it came to its end."""
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
    """Why what a journal says was there before a step is not what the plan lets it be."""
    if state.seen is None:
        return ""
    if [seen.resource for seen in state.seen] != list(step.resources):
        return "what was there before is not of what the plan names"
    planned = {seen.resource: seen for seen in step.before}
    for seen in state.seen:
        then = planned.get(seen.resource)
        if then is not None and not same(then, seen):
            return f"{seen.resource.label} was not what the plan says that it was"
    return ""


def strange(plan: Plan, records: Sequence[JournalRecord]) -> dict[str, str]:
    """Nodes of which the journal says what the plan cannot mean, and why: they are not visited."""
    return _Story(plan, records).strange


def min_of(*outcomes: Outcome) -> Outcome:
    """The worst of these."""
    return min(outcomes, key=lambda outcome: outcome.rank)


def _outcome(word: str) -> Outcome:
    """Of a journal; a word that this nodevet does not know says nothing."""
    try:
        return Outcome(word)
    except ValueError:
        return Outcome.UNKNOWN


def _unended(kind: str, folder: str) -> str:
    again = "nodevet rollback" if kind == "rollback" else "nodevet apply --resume"
    return (
        f"no end of the {kind} is in its journal: its controller was killed, or is still at it; "
        f"go on with `{again} {folder}`"
    )


def _between(first: str, last: str) -> float:
    """Seconds between two times of a journal; 0 if they are none."""
    try:
        return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
