"""What fixed a finding: the last change of its own fix, if that is certain. Pure."""

from collections.abc import Iterable
from math import inf

from nodevet.age import seconds_of
from nodevet.history.model import FindingSpan, RecordedAction, SpanEnd
from nodevet.result import Outcome

DONE = (Outcome.CHANGED.value, Outcome.VERIFIED_AFTER_REBOOT.value)
UNSURE = (Outcome.UNKNOWN.value, Outcome.ROLLBACK_FAILED.value, Outcome.PENDING.value)


def fixed_by(span: FindingSpan, actions: Iterable[RecordedAction]) -> RecordedAction | None:
    """The change after which the check said ok: of the fix of this check, for this subject, on this
    host, after the finding was last seen and before it was seen to be over, and not rolled back or
    left in doubt since. None if there is no such change."""
    if span.end is not SpanEnd.OK or span.ended is None:
        return None
    return _last_change(span, actions, _seconds(span.ended.at))


def fixed_since(span: FindingSpan, actions: Iterable[RecordedAction]) -> RecordedAction | None:
    """The change after which the apply itself saw the check say ok, for a finding that was there at
    the last visit: the host was not vetted since. None if there is no such change."""
    return _last_change(span, actions, inf) if span.end is None else None


def _last_change(
    span: FindingSpan, actions: Iterable[RecordedAction], until: float
) -> RecordedAction | None:
    """Of the check's own fix, for this subject, after the finding was last seen."""
    if span.finding is None:
        return None
    label, last = span.finding.subject.label, _seconds(span.last.at)
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


def _seconds(at: str) -> float:
    return seconds_of(at) or 0.0
