"""What each try of a run of fixes did, from its journal, for the history. Pure.

A run consists of tries: apply, resumes and rollbacks, each with a first record of its own. Each
change belongs to one try, so the history has it once.
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
from nodevet.resource import State, describe, is_same
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
        run_begin, try_records = records[place], records[place:until]
        if isinstance(run_begin, RunBegin):
            result = account(plan, records[:until])
            run = _run(run_begin, try_records, result, folder)
            yield Try(
                run,
                tuple(_actions(run, try_records, result)),
                tuple(_proofs(run, try_records, plan)),
            )


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
    run_begin: RunBegin, records: Sequence[JournalRecord], result: Result, folder: str
) -> RecordedFixRun:
    has_end = any(isinstance(record, RunEnd) for record in records)
    visited = {record.host for record in records if isinstance(record, (HostBegin, HostEnd))}
    hosts = _hosts_of(run_begin, result)
    return RecordedFixRun(
        id=_id(run_begin, folder),
        kind=run_begin.kind,
        plan=result.plan,
        digest=result.digest,
        author=result.author,
        approvals=tuple(approval.who for approval in run_begin.approvals),
        by=f"{run_begin.user}@{run_begin.controller}" if run_begin.user else run_begin.controller,
        folder=folder,
        started=run_begin.at or run_begin.started,
        seconds=result.seconds,
        exit_code=result.exit_code if has_end else None,
        outcomes=dict(Counter(host.outcome.value for host in hosts)),
        hosts=tuple(
            FixHost(host=host.host, outcome=host.outcome.value, why=host.why)
            for host in result.hosts
            if host.host in visited
        ),
    )


def _hosts_of(run_begin: RunBegin, result: Result) -> Sequence[HostResult]:
    """The hosts of the try."""
    if run_begin.kind != "rollback":
        return result.requested_hosts
    return [host for host in result.hosts if host.host in run_begin.hosts]


def _id(run_begin: RunBegin, folder: str) -> str:
    """`20261118T141000.123Z-5f1c00aa-1`: unique by its time and its folder's name."""
    try:
        at = datetime.fromisoformat(run_begin.at).astimezone(timezone.utc)
        moment = f"{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03d}Z"
    except (ValueError, OverflowError):
        moment = re.sub(r"[^0-9TZ.]", "", run_begin.at)
    return f"{moment}-{folder.rstrip('/').rpartition('/')[2]}"


def _actions(
    run: RecordedFixRun, records: Sequence[JournalRecord], result: Result
) -> Iterator[RecordedAction]:
    """Everything that the try changed, or may have changed."""
    last_change = {record.step: record.at for record in records if isinstance(record, CHANGING)}
    for host in result.hosts:
        for step in host.steps:
            if step.id not in last_change:
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
                    at=last_change[step.id],
                )


def _proofs(
    run: RecordedFixRun, records: Sequence[JournalRecord], plan: Plan
) -> Iterator[FixProof]:
    """A proof for each host and check that the try changed, or judged at the end."""
    proofs = _missing_proofs(records, plan)
    for record in records:
        if isinstance(record, HostEnd):
            proofs |= {(record.host, proof.check): proof for proof in record.proofs}
    for (host, check), proof in proofs.items():
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


def _missing_proofs(records: Sequence[JournalRecord], plan: Plan) -> dict[tuple[str, str], Proof]:
    """An empty proof for each host and check for which something was changed."""
    steps = {step.id: step for step in plan.steps}
    proofs = {}
    for record in records:
        if isinstance(record, CHANGING) and (step := steps.get(record.step)):
            node = plan.nodes.get(step.host)
            proofs[step.host, step.fix] = Proof(
                check=step.fix,
                asked=record.at,
                at=record.at,
                machine_id=node.machine_id if node else "",
            )
    return proofs


def _changes(step: StepResult) -> Iterator[tuple[str, str, str]]:
    """(resource, before, after) of a step; if it ended well, only of changed resources."""
    after = {state.resource: state for state in step.after}
    for before in step.before:
        after_state = after.get(before.resource)
        if after_state is None or not (step.outcome.good and is_same(before, after_state)):
            yield before.resource.label, *_state_texts(before, after_state)


def _state_texts(then: State, now: State | None) -> tuple[str, str]:
    """Both states in a few words, or as JSON if the words are the same."""
    before, after = describe(then), describe(now) if now else ""
    if now and before == after and not is_same(then, now):
        before, after = (msgspec.json.encode(state.value).decode() for state in (then, now))
    return before[:LONGEST], after[:LONGEST]
