"""Times as a plan has them. Pure."""

from datetime import datetime, timezone

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief


def instant(text: str) -> datetime | None:
    """ISO 8601 with an offset, in UTC; None for anything else."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return found.astimezone(timezone.utc) if found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def moment(text: str) -> str:
    """`2026-11-22 00:10 UTC`; a text that is not a time as it is."""
    found = instant(text)
    return f"{found:%Y-%m-%d %H:%M} UTC" if found else brief(text)


def until(text: str, now: datetime) -> str:
    """`in 23 h 50 min (2026-11-22 00:10 UTC)`, and so of what is over."""
    found = instant(text)
    if found is None:
        return brief(text) or "not said"
    seconds = (found - now).total_seconds()
    span = elapsed(abs(seconds) // 60 * 60 if abs(seconds) >= 60 else abs(seconds) // 1)
    return f"{f'in {span}' if seconds > 0 else f'{span} ago'} ({moment(text)})"
