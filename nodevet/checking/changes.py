"""Records for the changes of a host between what the store remembers and one visit."""

from collections.abc import Mapping
from enum import Enum

import msgspec

from nodevet.model import Finding, Severity, StandingTrouble


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What is new since an earlier run: findings by host and place, and hosts as a whole.

    `standing`: what is remembered of each, by host and place; of a host as a whole the place is -1.
    """

    findings: frozenset[tuple[str, int]] = frozenset()
    hosts: frozenset[str] = frozenset()
    standing: Mapping[tuple[str, int], StandingTrouble] = {}


class News(str, Enum):
    """How a trouble of a host compares with what the store remembers."""

    NEW = "new"  # this verdict begins
    CHANGED = "changed"  # the same verdict, with other values
    STILL = "still"  # as it was
    FIXED = "fixed"  # the check says ok now
    GONE = "gone"  # no trouble now, nor ok: not applicable, waived, no longer asked, replaced


class FindingNews(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble of a host, now or until now. Without a key: the host as a whole."""

    news: News
    key: str  # Finding.key
    check: str
    severity: Severity
    place: int = -1  # of what the check says now, among the host's findings; -1: nothing
    why: str = ""  # of the host as a whole: why it is not vetted
    before: Finding | None = None  # what was said of it before, if that was something else
    since: str  # when this verdict began, UTC, ISO 8601
    since_visit: int = 0  # by its number in the store; 0: this one, which has none yet
    began: int = 0  # if it is flapping: how often it began in the last ten judged visits
    after_plan: str = ""  # it came back after a run of this plan had proved it fixed


class HostNews(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a host between what the store remembers and one visit."""

    host: str
    first: bool = False  # it was never met before
    replaced: bool = False  # another machine than the last time: nothing goes on
    findings: tuple[FindingNews, ...] = ()

    def of(self, *news: News) -> tuple[FindingNews, ...]:
        """The changes of these kinds."""
        return tuple(finding for finding in self.findings if finding.news in news)

    @property
    def new(self) -> tuple[FindingNews, ...]:
        return self.of(News.NEW)

    @property
    def flapping(self) -> tuple[FindingNews, ...]:
        """Troubles that began so often of late that their next end means little."""
        return tuple(finding for finding in self.findings if finding.began)
