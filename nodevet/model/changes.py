"""Records for the changes of a host between what the store remembers and one visit."""

from collections.abc import Mapping
from enum import Enum

import msgspec

from nodevet.model import Finding, Severity
from nodevet.model.run import StandingTrouble


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What is new since an earlier run: findings by host and place, and whole hosts.

    `standing`: what the store remembers of each trouble, by host and place; -1 is the place of a
    whole host.
    """

    findings: frozenset[tuple[str, int]] = frozenset()
    hosts: frozenset[str] = frozenset()
    standing: Mapping[tuple[str, int], StandingTrouble] = {}


class News(str, Enum):
    """How a trouble of a host compares with what the store remembers."""

    NEW = "new"  # this verdict begins
    CHANGED = "changed"  # the same verdict, with other values
    STILL = "still"  # as it was
    FIXED = "fixed"  # the check is ok now
    GONE = "gone"  # neither trouble nor ok now: not applicable, waived, no longer checked, replaced


class FindingNews(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble of a host, now or until now. Without a key: a trouble of the whole host."""

    news: News
    key: str  # Finding.key
    check: str
    severity: Severity
    place: int = -1  # the place of the current finding among the host's findings; -1: none
    why: str = ""  # of a whole host: why it is not vetted
    before: Finding | None = None  # the earlier finding, if it was another one
    since: str  # when this verdict began, UTC, ISO 8601
    since_visit: int = 0  # the visit's number in the store; 0: this visit, which has none yet
    began: int = 0  # if it is flapping: how often it began in the last ten judged visits
    after_plan: str = ""  # it came back after a run of this plan had proved it fixed


class HostNews(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a host between what the store remembers and one visit."""

    host: str
    first: bool = False  # the store did not know the host before
    replaced: bool = False  # another machine than last time, so no trouble continues
    findings: tuple[FindingNews, ...] = ()

    def findings_of(self, *news: News) -> tuple[FindingNews, ...]:
        """The changes of these kinds."""
        return tuple(finding for finding in self.findings if finding.news in news)

    @property
    def new_findings(self) -> tuple[FindingNews, ...]:
        return self.findings_of(News.NEW)
