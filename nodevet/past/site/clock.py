"""The clock for pages that people read later: it gives no ages. Pure."""

from datetime import datetime, timezone

from nodevet.sheet.clock import Clock


class PageClock(Clock, frozen=True, kw_only=True):
    """Shows moments in UTC, with their year."""

    def moment_text(self, at: str) -> str:
        """`2026-11-18 02:00`."""
        moment = self.local(at)
        return f"{moment:%Y-%m-%d %H:%M}" if moment else "unknown"

    def age_text(self, at: str) -> str:
        """An empty text, because nodevet does not know when someone reads the page."""
        return ""


CLOCK = PageClock(now=datetime(1970, 1, 1, tzinfo=timezone.utc), zone=timezone.utc)
