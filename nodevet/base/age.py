"""How old evidence is, and whether it is too old to be judged. Pure: now is an argument.

Two clocks date evidence: the controller's on arrival, which a saved visit holds, and the node's
own, which the evidence holds. The controller's counts if it is known: a node's clock may be wrong,
which the check `clock_skew` reports.
"""

import sys
from datetime import datetime, timezone

from nodevet.base.durations import coarse

CHECK = "evidence_age"
"""The name of a finding about age, instead of a check's name."""

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
"""What `nodevet explain evidence_age` shows."""

WEEK = 7 * 86400.0  # seconds
AHEAD = 300.0  # seconds that two clocks may differ; a later time is not believed
ADVICE = "visit the host again; --max-age none judges saved evidence of any age"


def instant(seconds: float | None) -> str:
    """Seconds since 1970 UTC as ISO 8601; "" for None and for times that no calendar has.

    >>> instant(0.0)
    '1970-01-01T00:00:00+00:00'
    """
    if seconds is None:
        return ""
    try:
        at = datetime.fromtimestamp(seconds, timezone.utc)
        return sys.intern(at.isoformat(timespec="seconds"))  # of many hosts in one second
    except (OverflowError, ValueError, OSError):
        return ""


def seconds_of(text: str) -> float | None:
    """The Unix time of an ISO 8601 text; None if the text is not one."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (OverflowError, ValueError, OSError):
        return None


def age_refusal(arrived: str, clock: str, *, now: float, most: float) -> str:
    """Why evidence is too old to be judged, or "".

    `arrived`: by the controller's clock, else `clock`, the node's; both ISO 8601. `most`: seconds.
    """
    text = arrived or clock
    at = seconds_of(text)
    if at is None:
        return "the time of the evidence is not known"
    if at > now + AHEAD:
        ahead = coarse(at - now)
        return f"the evidence is of {text}, {ahead} in the future, so its age is not known"
    if now - at > most:
        return (
            f"the evidence is {coarse(now - at)} old, of {text}; at most {coarse(most)} are allowed"
        )
    return ""


def run_refusal(started: str, *, now: float, most: float) -> str:
    """Why a run is not recent enough to act on, or "". `started`: ISO 8601; `most`: seconds."""
    at = seconds_of(started)
    if at is None:
        return "the run is of unknown age"
    if at > now + AHEAD:
        return "the run is of the future: a clock is wrong"
    return f"the run is {coarse(now - at)} old" if now - at > most else ""
