"""How old evidence is, and whether that is too old to judge by. Pure: now is an argument.

Two clocks say when evidence was read: the controller's as it came in, which a saved visit keeps,
and the node's own, which is in the evidence. The controller's counts if it is known: a node's
clock may be wrong, and `clock_skew` asks about that.
"""

from datetime import datetime, timezone

from nodevet.base.durations import coarse

CHECK = "evidence_age"
"""What such a finding stands under in the place of a check."""

PAGE = """The evidence is recent enough to be judged.

**Why it matters.** Saved evidence (`--evidence`) is what a node was. A fault that came since is
not in it, and "ok" would be said of a machine in a state that has not been read.

**Read from** the controller's clock as the evidence came in, which `check --save` keeps; without
it the node's own, as the probe ran.

**Verdicts.** Unknown if the evidence is older than `--max-age` (7 days), if its time is more than
5 minutes in the future, or if its time is not known; then nothing else of that host is judged.
Evidence of a visit in the same run has no such finding.

**To fix it** visit the host again. `--max-age 30d` judges older evidence, and
`--max-age none` evidence of any age: its reports show how old it is."""
"""What `nodevet explain` says of it."""

WEEK = 7 * 86400.0  # seconds
AHEAD = 300.0  # seconds that two clocks may differ; a later time is not when it was read
ADVICE = "visit the host again; --max-age none judges saved evidence of any age"


def instant(seconds: float | None) -> str:
    """Seconds since 1970 UTC as ISO 8601; empty if there are none, or no calendar has them.

    >>> instant(0.0)
    '1970-01-01T00:00:00+00:00'
    """
    if seconds is None:
        return ""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return ""


def seconds_of(text: str) -> float | None:
    """Unix time of an ISO 8601 instant; None for text that is none."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (OverflowError, ValueError, OSError):
        return None


def too_old(arrived: str, clock: str, *, now: float, most: float) -> str:
    """Why evidence is not judged for its age; empty if it is young enough.

    `arrived` by the controller's clock, or else `clock`, the node's; `most` in seconds.
    """
    read = arrived or clock
    at = seconds_of(read)
    if at is None:
        return "when the evidence was read is not known"
    if at > now + AHEAD:
        return f"the evidence is of {read}, {coarse(at - now)} in the future: its age is not known"
    if now - at > most:
        return (
            f"the evidence is {coarse(now - at)} old, of {read}; at most {coarse(most)} are allowed"
        )
    return ""
