"""What fixed a finding: the last change of its own fix, if that is certain. Pure."""

from collections.abc import Iterable
from math import inf

from nodevet.base.age import seconds_of
from nodevet.fixing.result import Outcome
from nodevet.store.records.model import FindingSpan, FixProof, RecordedAction, SpanEnd

DONE = (Outcome.CHANGED.value, Outcome.VERIFIED_AFTER_REBOOT.value)
UNSURE = (Outcome.UNKNOWN.value, Outcome.ROLLBACK_FAILED.value, Outcome.PENDING.value)


def fixed_by(span: FindingSpan, actions: Iterable[RecordedAction]) -> RecordedAction | None:
    """The change after which the check said ok: of the fix of this check, for this subject, on this
    host, after the finding was last seen and before it was seen to be over, and not rolled back or
    left in doubt since. None if there is no such change."""
    if span.end is not SpanEnd.OK or span.ended is None or span.finding is None:
        return None
    label = span.finding.subject.label
    last, until = _seconds(span.last.at), _seconds(span.ended.at)
    meanwhile = [
        action
        for action in actions
        if action.host == span.host
        and action.fix == span.check
        and label in action.subjects
        and last < _seconds(action.at) < until
        and (action.outcome in DONE + UNSURE or action.kind == "rollback")
    ]
    newest = max(meanwhile, key=lambda action: _seconds(action.at), default=None)
    if newest is None or newest.kind != "apply" or newest.outcome not in DONE:
        return None
    return newest


def proved(span: FindingSpan, proofs: Iterable[FixProof]) -> FixProof | None:
    """What a run of fixes proved of a finding after it was last seen, and before the next visit
    that judged it. None if the last run that was at its check proved nothing of it. After: by
    the clock, and by the order in which both were recorded, for two clocks may differ.

    `proofs`: the oldest first."""
    last, until = _seconds(span.last.at), _seconds(span.ended.at) if span.ended else inf
    meanwhile = [
        proof
        for proof in proofs
        if (proof.host, proof.check) == (span.host, span.check)
        and last < _seconds(proof.asked)
        and _seconds(proof.at) <= until
    ]
    newest = meanwhile[-1] if meanwhile else None
    if newest is None or newest.baseline != span.baseline or span.last_visit > newest.visit:
        return None
    return newest if newest.covers(span.key, span.finding) else None


def fixed_since(span: FindingSpan, proofs: Iterable[FixProof]) -> FixProof | None:
    """What a run of fixes proved of a finding that was there at the last visit. None: nothing."""
    return proved(span, proofs) if span.end is None else None


def _seconds(at: str) -> float:
    return seconds_of(at) or 0.0
