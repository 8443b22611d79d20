"""Moments as the reader's clock shows them. Pure: now is an argument."""

from datetime import datetime, tzinfo

import msgspec

from nodevet.base.durations import coarse


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The time now, and the reader's time zone."""

    now: datetime
    zone: tzinfo | None = None  # None: this machine's

    def local(self, at: str) -> datetime | None:
        """The moment of an ISO 8601 text in the reader's zone; None if the text is not one."""
        try:
            return datetime.fromisoformat(at.replace("Z", "+00:00")).astimezone(self.zone)
        except (OverflowError, ValueError, OSError):
            return None

    def moment_text(self, at: str) -> str:
        """`Nov 18 02:00`; in another year `2025-11-18 02:00`."""
        moment = self.local(at)
        if moment is None:
            return "unknown"
        if moment.year != self.now.astimezone(self.zone).year:
            return f"{moment:%Y-%m-%d %H:%M}"
        return f"{moment:%b} {moment.day:>2} {moment:%H:%M}"

    def age_text(self, at: str) -> str:
        """`2 d ago`; "" if the moment is not in the past."""
        moment = self.local(at)
        seconds = (self.now - moment).total_seconds() if moment else -1.0
        return f"{coarse(seconds)} ago" if seconds >= 0 else ""

    def moment_and_age(self, at: str) -> str:
        """`Nov 18 02:00, 2 d ago`."""
        return ", ".join(filter(None, (self.moment_text(at), self.age_text(at))))
