"""A run: its hosts, what is new in it, and its exit code."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

import msgspec

from nodevet.model import NODE, HostReport, HostSummary, Severity, Status, Subject, Verdict

RUN_SCHEMA = 3
"""The version of the stored form of a run: 3 added `id`."""


def new_run_id(started: datetime) -> str:
    """A name for a run that begins now: `20261122T040012.345Z-1f3a9c2e`.

    UTC to the millisecond and 32 random bits. Sorts as text by time; safe as a file name.
    Raises ValueError if `started` has no time zone.
    """
    if started.tzinfo is None:
        raise ValueError("a run starts at a time with a time zone")
    at = started.astimezone(timezone.utc)
    return f"{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03d}Z-{os.urandom(4).hex()}"


class StandingTrouble(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem of a run and its history: since when it exists."""

    host: str
    place: int = -1  # of the finding among the host's; -1: the host as a whole is not vetted
    check: str = ""
    verdict: Verdict = Verdict.FAIL
    severity: Severity = Severity.CRITICAL
    new: bool = False  # it began since the run before
    changed: bool = False  # it stood before, with other values
    since: str = ""  # when this verdict began, ISO 8601
    began: int = 0  # it is flapping: so often did it begin in the last ten judged visits
    after_plan: str = ""  # it came back after a run of this plan had proved it fixed


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trouble that the run before had and this one has not."""

    host: str
    check: str = ""  # empty: the host as a whole was not vetted
    subject: Subject = NODE
    severity: Severity = Severity.CRITICAL
    verdict: Verdict = Verdict.FAIL  # that it was: fail, or unknown
    fixed: bool = True  # the check says ok; else it is waived, not applicable, not asked, replaced
    since: str = ""  # when it had begun, ISO 8601
    began: int = 0  # it is flapping
    what: str = ""  # what had been found, in words


class Suspicion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Many hosts begin to fail one check at once: the rule, the controller or the site may be at
    fault, not the hosts.
    """

    checks: tuple[str, ...] = ()  # empty: they are not vetted
    hosts: tuple[str, ...]  # on which it begins
    judged: int  # hosts, of the run
    changed: tuple[str, ...] = ()  # what else is not as it was in the run before


class RunNews(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run compared with the history: what is new, what is fixed, and since when each problem
    exists.
    """

    since: str = ""  # when the run before started, ISO 8601; empty: there is none
    run: str = ""  # its id
    standing: tuple[StandingTrouble, ...] = ()
    ended: tuple[Ended, ...] = ()
    appeared: tuple[str, ...] = ()  # hosts that were never met before
    vanished: tuple[str, ...] = ()  # hosts of the run before, of the same sweep, alone
    replaced: tuple[str, ...] = ()  # another machine, or re-imaged: nothing goes on
    suspicions: tuple[Suspicion, ...] = ()
    not_notified: tuple[str, ...] = ()  # who should have been told of this, and was not


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep: what every report format renders and `report` reads back."""

    schema: int = RUN_SCHEMA
    id: str  # see new_run_id; the same in every format and in every copy
    nodevet: str
    started: str  # ISO 8601 with offset
    seconds: float
    fail_on: Severity = Severity.WARNING
    interrupted: bool = False
    replayed: bool = False  # saved evidence was judged; no host was visited
    baselines: Mapping[str, str] = {}  # name -> sha256
    fail_on_new: bool | msgspec.UnsetType = msgspec.UNSET  # only what began since the run before
    only: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # no other check was judged
    skip: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # these were not
    news: RunNews | msgspec.UnsetType = msgspec.UNSET  # unset: nothing is remembered
    hosts: Sequence[HostReport] = ()  # a tuple, or of many hosts a nodevet.vet.packed.PackedHosts

    def __post_init__(self) -> None:
        if isinstance(self.hosts, list):
            msgspec.structs.force_setattr(self, "hosts", tuple(self.hosts))

    @property
    def summaries(self) -> Sequence[HostSummary]:
        """The summaries of all hosts; code that needs no findings uses these, which takes no
        decoding.
        """
        host_summaries: Sequence[HostSummary] | None = getattr(self.hosts, "summaries", None)
        return [host.summary for host in self.hosts] if host_summaries is None else host_summaries

    @property
    def exit_code(self) -> int:
        """0 all ok; 1 a failure at or above `fail_on`; 3 something could not be judged. 1 wins.

        With `fail_on_new` a failure counts unless it is known from before; without an earlier run,
        all failures are new.
        """
        compared = self.fail_on_new and self.news and self.news.since
        old = bool(compared and self.news and not self._fails_anew(self.news))
        return self._code(failures=not old)

    @property
    def state_code(self) -> int:
        """Like `exit_code`, but `--fail-on new` has no effect: known failures count, too."""
        return self._code(failures=True)

    def _code(self, *, failures: bool) -> int:
        code = exit_code(self.summaries, self.fail_on, failures=failures)
        return code or (3 if self.interrupted else 0)

    def _fails_anew(self, news: RunNews) -> bool:
        """Whether a host fails something that is not known from before."""
        least = self.fail_on.rank
        old = Counter(
            standing.host
            for standing in news.standing
            if standing.verdict is Verdict.FAIL
            and standing.severity.rank >= least
            and standing.place >= 0
            and not standing.new
        )
        failing = (
            (host.host, verdict, severity, number)
            for host in self.summaries
            for verdict, severity, number in host.findings
        )
        now: Counter[str] = Counter()
        for name, verdict, severity, number in failing:
            if verdict is Verdict.FAIL and severity.rank >= least:
                now[name] += number
        return any(number > old[name] for name, number in now.items())


def exit_code(
    hosts: "Iterable[HostReport | HostSummary]", fail_on: Severity, *, failures: bool = True
) -> int:
    """The exit code of a run over these hosts; see `Run.exit_code`. `failures`: whether they
    count."""
    code, seen = 0, False
    for each in hosts:
        seen = True
        host = each.summary if isinstance(each, HostReport) else each
        if host.status is not Status.VETTED or host.verdicts <= {
            Verdict.UNKNOWN,
            Verdict.NOT_APPLICABLE,
        }:
            code = 3
        for verdict, severity, _ in host.findings:
            if severity.rank < fail_on.rank:
                continue
            if verdict is Verdict.FAIL and failures:
                return 1
            if verdict is Verdict.UNKNOWN:
                code = 3
    return code if seen else 3
