"""Times in plans. Pure."""

from datetime import datetime, timezone

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief


def parse_time(text: str) -> datetime | None:
    """ISO 8601 with an offset, in UTC; None for anything else."""
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return time.astimezone(timezone.utc) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None


def time_text(text: str) -> str:
    """`2026-11-22 00:10 UTC`; the text itself if it is not a time."""
    time = parse_time(text)
    return f"{time:%Y-%m-%d %H:%M} UTC" if time else brief(text)


def time_span_text(text: str, now: datetime) -> str:
    """`in 23 h 50 min (2026-11-22 00:10 UTC)`, or `5 min ago (...)`."""
    time = parse_time(text)
    if time is None:
        return brief(text) or "not said"
    seconds = (time - now).total_seconds()
    span = elapsed(abs(seconds) // 60 * 60 if abs(seconds) >= 60 else abs(seconds) // 1)
    return f"{f'in {span}' if seconds > 0 else f'{span} ago'} ({time_text(text)})"
