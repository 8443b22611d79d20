"""What a command of the history shows, before it is text: facts, tables, charts. Pure.

Texts are printable already. Terminal, Markdown and HTML each lay out the same sheet.
"""

from datetime import datetime, tzinfo
from typing import NamedTuple

import msgspec

from nodevet.age import words


class Cell(NamedTuple):
    """One cell of a table. `tone`: ok, fail, warning, unknown, unreached, waived, quiet."""

    text: str
    tone: str = ""
    right: bool = False  # a number


class HistoryTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under heads; without heads they explain themselves."""

    title: str = ""
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


class RunPoint(NamedTuple):
    """A run, and what was measured in it."""

    label: str  # when
    least: float | None
    value: float | None
    most: float | None


class HistoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart, with a band from the least to the most if they differ."""

    name: str
    points: tuple[RunPoint, ...]
    tone: str = ""  # fail, unknown; none: a colour of its own


class HistoryChart(msgspec.Struct, frozen=True, kw_only=True):
    """Lines over the same runs."""

    title: str
    unit: str = ""
    lines: tuple[HistoryLine, ...]
    whole: bool = False  # counts: the axis begins at 0 and has whole numbers


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown."""

    title: str
    kind: str  # runs, run, history, diff, trend, passport
    facts: tuple[str, ...] = ()  # one line below the title
    about: tuple[tuple[str, str], ...] = ()  # what, and its value
    parts: tuple[HistoryTable | HistoryChart, ...] = ()
    end: str = ""  # the last line


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """When it is, and where: times are told as the reader's own clock shows them."""

    now: datetime
    zone: tzinfo | None = None  # None: this machine's

    def local(self, at: str) -> datetime | None:
        """The moment on the reader's clock; None for a text that is none."""
        try:
            return datetime.fromisoformat(at.replace("Z", "+00:00")).astimezone(self.zone)
        except (OverflowError, ValueError, OSError):
            return None

    def at(self, at: str) -> str:
        """`Nov 18 02:00`; of another year `2025-11-18 02:00`."""
        moment = self.local(at)
        if moment is None:
            return "unknown"
        if moment.year != self.now.astimezone(self.zone).year:
            return f"{moment:%Y-%m-%d %H:%M}"
        return f"{moment:%b} {moment.day:>2} {moment:%H:%M}"

    def ago(self, at: str) -> str:
        """`2 d ago`; empty for what is not in the past."""
        moment = self.local(at)
        seconds = (self.now - moment).total_seconds() if moment else -1.0
        return f"{words(seconds)} ago" if seconds >= 0 else ""

    def both(self, at: str) -> str:
        """`Nov 18 02:00, 2 d ago`."""
        return ", ".join(filter(None, (self.at(at), self.ago(at))))
