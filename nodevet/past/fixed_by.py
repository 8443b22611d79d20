"""Which action fixed a finding: the last change of its own fix, if that is certain. Pure."""

from collections.abc import Iterable
from math import inf

from nodevet.base.age import seconds_of
from nodevet.fixing.result import Outcome
from nodevet.store.records.model import FindingSpan, FixProof, RecordedAction, SpanEnd

DONE = (Outcome.CHANGED.value, Outcome.VERIFIED_AFTER_REBOOT.value)
UNSURE = (Outcome.UNKNOWN.value, Outcome.ROLLBACK_FAILED.value, Outcome.PENDING.value)


def fixed_by(span: FindingSpan, actions: Iterable[RecordedAction]) -> RecordedAction | None:
    """The change after which the check said ok; None if there is none. It belongs to the fix of
    this check, for this subject, on this host, between the last visit with the finding and the
    first without it, and was not rolled back or left in doubt since."""
    if span.end is not SpanEnd.OK or span.ended is None or span.finding is None:
        return None
    label = span.finding.subject.label
    last, until = unix_time(span.last.at), unix_time(span.ended.at)
    meanwhile = [
        action
        for action in actions
        if action.host == span.host
        and action.fix == span.check
        and label in action.subjects
        and last < unix_time(action.at) < until
        and (action.outcome in DONE + UNSURE or action.kind == "rollback")
    ]
    newest = max(meanwhile, key=lambda action: unix_time(action.at), default=None)
    if newest is None or newest.kind != "apply" or newest.outcome not in DONE:
        return None
    return newest


def find_proof(span: FindingSpan, proofs: Iterable[FixProof]) -> FixProof | None:
    """The proof that a run of fixes fixed a finding between the last visit with it and the next
    visit that judged it. None if the last run of fixes for this check proved nothing about it.
    The proof must be later by the clock and by the order of records, since two clocks may differ.

    `proofs`: the oldest first."""
    last, until = unix_time(span.last.at), unix_time(span.ended.at) if span.ended else inf
    meanwhile = [
        proof
        for proof in proofs
        if (proof.host, proof.check) == (span.host, span.check)
        and last < unix_time(proof.asked)
        and unix_time(proof.at) <= until
    ]
    newest = meanwhile[-1] if meanwhile else None
    if newest is None or newest.baseline != span.baseline or span.last_visit > newest.visit:
        return None
    return newest if newest.covers(span.key, span.finding) else None


def fixed_since(span: FindingSpan, proofs: Iterable[FixProof]) -> FixProof | None:
    """The proof that a finding of the last visit is fixed since, or None."""
    return find_proof(span, proofs) if span.end is None else None


def unix_time(at: str) -> float:
    """Seconds since 1970 of an ISO 8601 text; 0 if it is not one."""
    return seconds_of(at) or 0.0
