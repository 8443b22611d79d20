"""What each try of a run of fixes did, as the history keeps it: by the journal, which is the whole
truth. Pure.

A run is applied, resumed and rolled back in tries, each of which begins with a record of its own.
What a try did is told of it alone, so that nothing is told twice.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

import msgspec

from nodevet.fix.journal.account import account
from nodevet.fix.journal.records import (
    ActionBegin,
    ActionEnd,
    ActionUnknown,
    HostBegin,
    HostEnd,
    JournalRecord,
    Proof,
    RunBegin,
    RunEnd,
    StepReverted,
    StepReverting,
)
from nodevet.fix.model import Plan
from nodevet.fixing.result import HostResult, Result, StepResult
from nodevet.resource import State, describe, same
from nodevet.store.records.model import (
    FixHost,
    FixProof,
    RecordedAction,
    RecordedFixRun,
    RecordedPlan,
)

CHANGING = (ActionBegin, ActionEnd, ActionUnknown, StepReverting, StepReverted)
LONGEST = 400  # characters of a state


class Try(NamedTuple):
    """One try of a run: what it changed, and what it proved."""

    run: RecordedFixRun
    actions: tuple[RecordedAction, ...]
    proofs: tuple[FixProof, ...]


def tries(plan: Plan, records: Sequence[JournalRecord], folder: str) -> Iterator[Try]:
    """Each try, the oldest first; `folder`: the path of the run's."""
    begins = [place for place, record in enumerate(records) if isinstance(record, RunBegin)]
    for place, until in zip(begins, [*begins[1:], len(records)], strict=True):
        begin, own = records[place], records[place:until]
        if isinstance(begin, RunBegin):
            result = account(plan, records[:until])
            run = _run(begin, own, result, folder)
            yield Try(run, tuple(_actions(run, own, result)), tuple(_proofs(run, own, plan)))


def recorded_plan(plan: Plan, digest: str) -> RecordedPlan:
    """A plan as it is listed."""
    hosts: dict[str, dict[str, None]] = {}
    for step in plan.steps:
        hosts.setdefault(step.host, {})[step.fix] = None
    return RecordedPlan(
        digest=digest,
        id=plan.id,
        author=plan.author,
        created=plan.created,
        hosts={host: tuple(fixes) for host, fixes in hosts.items()},
    )


def _run(
    begin: RunBegin, own: Sequence[JournalRecord], result: Result, folder: str
) -> RecordedFixRun:
    ended = any(isinstance(record, RunEnd) for record in own)
    came = {record.host for record in own if isinstance(record, (HostBegin, HostEnd))}
    asked = _asked(begin, result)
    return RecordedFixRun(
        id=_id(begin, folder),
        kind=begin.kind,
        plan=result.plan,
        digest=result.digest,
        author=result.author,
        approvals=tuple(approval.who for approval in begin.approvals),
        by=f"{begin.user}@{begin.controller}" if begin.user else begin.controller,
        folder=folder,
        started=begin.at or begin.started,
        seconds=result.seconds,
        exit_code=result.exit_code if ended else None,
        outcomes=dict(Counter(host.outcome.value for host in asked)),
        hosts=tuple(
            FixHost(host=host.host, outcome=host.outcome.value, why=host.why)
            for host in result.hosts
            if host.host in came
        ),
    )


def _asked(begin: RunBegin, result: Result) -> Sequence[HostResult]:
    """The hosts that it was for."""
    if begin.kind != "rollback":
        return result.asked
    return [host for host in result.hosts if host.host in begin.hosts]


def _id(begin: RunBegin, folder: str) -> str:
    """`20261118T141000.123Z-5f1c00aa-1`: no other try has both the moment and the folder's name."""
    try:
        at = datetime.fromisoformat(begin.at).astimezone(timezone.utc)
        moment = f"{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03d}Z"
    except ValueError:
        moment = re.sub(r"[^0-9TZ.]", "", begin.at)
    return f"{moment}-{folder.rstrip('/').rpartition('/')[2]}"


def _actions(
    run: RecordedFixRun, own: Sequence[JournalRecord], result: Result
) -> Iterator[RecordedAction]:
    """What was changed in it, or may have been."""
    last = {record.step: record.at for record in own if isinstance(record, CHANGING)}
    for host in result.hosts:
        for step in host.steps:
            if step.id not in last:
                continue
            for resource, before, after in _changes(step):
                yield RecordedAction(
                    run=run.id,
                    kind=run.kind,
                    plan=run.plan,
                    host=host.host,
                    step=step.id,
                    fix=step.fix,
                    subjects=step.subjects,
                    resource=resource,
                    before=before,
                    after=after,
                    outcome=step.outcome.value,
                    at=last[step.id],
                )


def _proofs(run: RecordedFixRun, own: Sequence[JournalRecord], plan: Plan) -> Iterator[FixProof]:
    """Of each host and check that it changed, or judged at the end."""
    found = _touched(own, plan)
    for record in own:
        if isinstance(record, HostEnd):
            found |= {(record.host, proof.check): proof for proof in record.proofs}
    for (host, check), proof in found.items():
        if host in plan.nodes:
            yield FixProof(
                run=run.id,
                plan=run.plan,
                host=host,
                check=check,
                baseline=plan.nodes[host].baseline,
                machine_id=proof.machine_id,
                asked=proof.asked,
                at=proof.at,
                keys=proof.keys,
                subjects=proof.subjects,
            )


def _touched(own: Sequence[JournalRecord], plan: Plan) -> dict[tuple[str, str], Proof]:
    """Of each host and check that something was changed for: nothing is proved yet."""
    steps = {step.id: step for step in plan.steps}
    found = {}
    for record in own:
        if isinstance(record, CHANGING) and (step := steps.get(record.step)):
            node = plan.nodes.get(step.host)
            found[step.host, step.fix] = Proof(
                check=step.fix,
                asked=record.at,
                at=record.at,
                machine_id=node.machine_id if node else "",
            )
    return found


def _changes(step: StepResult) -> Iterator[tuple[str, str, str]]:
    """Each resource of a step, with what it was and what it is; of one that ended well those that
    are not as they were."""
    after = {state.resource: state for state in step.after}
    for then in step.before:
        now = after.get(then.resource)
        if now is None or not (step.outcome.good and same(then, now)):
            yield then.resource.label, *_words(then, now)


def _words(then: State, now: State | None) -> tuple[str, str]:
    """Told apart by all of their values if a few words do not."""
    before, after = describe(then), describe(now) if now else ""
    if now and before == after and not same(then, now):
        before, after = (msgspec.json.encode(each.value).decode() for each in (then, now))
    return before[:LONGEST], after[:LONGEST]
