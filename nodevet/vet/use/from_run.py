"""`check --from-run`: judge the recorded evidence of a run by other baselines. Visits no node.

As many processes as there are cores read the evidence from the store in batches.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from nodevet.base import age
from nodevet.base.last_few import LastFew
from nodevet.base.processes import KilledProcess, batches, cores, spread
from nodevet.checking.identity import HOSTNAME
from nodevet.evidence.document import Evidence, EvidenceError, open_evidence
from nodevet.fleet import Visit
from nodevet.model import Finding, Host, HostReport, Severity, Status
from nodevet.model.run import Run
from nodevet.store.records.model import RecordedRun, RecordedVisit
from nodevet.vet.packed import PackedReport, Packer
from nodevet.vet.use.asks import sections_of
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import judge_visit
from nodevet.vet.use.judges import LOST
from nodevet.vet.use.last_look import Ignored, LastLook
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.targets import Targets, any_hostname
from nodevet.vet.use.vet import collect

if TYPE_CHECKING:
    from nodevet.store import Store
    from nodevet.store.evidence import KeptEvidence

BATCH = 64  # hosts whose evidence one process holds at a time
WORTH = 64  # hosts, from which on processes of their own are worth starting
THINNED = "its evidence was pruned: it cannot be judged again"
NOT_KEPT = "its evidence was not recorded: it cannot be judged again"
NOT_VISITED = "it is not in the recorded run"
NOTHING_BEFORE = "no evidence of an earlier run is stored"


class RecordedHosts(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts of a recorded run to judge again. `left_out`: hosts that were not requested."""

    run: RecordedRun
    hosts: tuple[Host, ...]
    visited: frozenset[str]
    left_out: tuple[str, ...] = ()
    lost: int = 0  # hosts that the run did not reach and nobody names: it is no whole run


class Rejudge(msgspec.Struct, frozen=True, kw_only=True):
    """How a recorded run is judged again."""

    store: str | None  # its URL; None: the user's own
    context: VetContext  # with a RecordedLook if counters are judged by what came since
    processes: int = 0  # 0: as many as there are cores


def recorded_hosts(store: "Store", ref: str, targets: Targets) -> RecordedHosts:
    """The hosts of a run, or the named ones; see `nodevet.vet.use.saved.read_saved`.

    The store does not record `expect_hostname`: only a host whose name was refused then is checked
    again, against the name that its finding expected. Raises StoreError, and what `targets` raises.
    """
    run = store.run(ref)
    refused = {span.host: span.finding for span in store.spans(run=run.id, check=HOSTNAME)}
    kept_hosts = [
        Host(
            name=visit.host,
            groups=frozenset(visit.groups),
            expect_hostname=visit.host in refused and _expected(refused[visit.host]),
        )
        for visit in store.visits(run.id)
    ]
    visited = frozenset(host.name for host in kept_hosts)
    if not targets:
        hosts_asked = targets.hosts_within_limit(kept_hosts)
        hosts = hosts_asked if targets.expect_hostname else any_hostname(hosts_asked)
        lost = max(0, run.hosts - len(visited))
        return RecordedHosts(run=run, hosts=hosts, visited=visited, lost=lost)
    hosts = targets.hosts()
    left_out = tuple(targets.strangers(visited, hosts))
    return RecordedHosts(run=run, hosts=hosts, visited=visited, left_out=left_out)


def _expected(refused: Finding | None) -> bool | str:
    """The hostname that a finding expected; True if it does not say."""
    expected = refused.expected if refused else None
    return expected if isinstance(expected, str) else True


def rejudge(
    asked: RecordedHosts,
    how: Rejudge,
    *,
    fail_on: Severity,
    killed: Callable[[KilledProcess, Sequence[str]], None],
    listener: VetListener | None = None,
) -> Run:
    """The run as judged by today's baselines. A KeyboardInterrupt ends it early.

    Raises StoreError.
    """
    return collect(
        asked.hosts,
        _reports(asked, how, killed),
        how.context,
        fail_on=fail_on,
        replayed=True,
        interrupted=asked.lost > 0,
        listener=listener,
    )


def _reports(
    recorded: RecordedHosts, how: Rejudge, killed: Callable[[KilledProcess, Sequence[str]], None]
) -> Generator[PackedReport]:
    names = [host.name for host in recorded.hosts]
    few = len(names) < WORTH and not how.processes
    judged = spread(
        lambda: _judging(recorded, how),
        batches(names, BATCH),
        processes=1 if few else how.processes or cores(),
        on_killed=killed,
        lost_result=_unjudged_hosts,
    )
    try:
        for batch in judged:
            if isinstance(how.context.since, RecordedLook):
                for host, ignored in batch.ignored.items():
                    how.context.since.add_ignored(host, ignored)
            yield from batch.reports
    finally:
        judged.close()


class _Judged(NamedTuple):
    """The result of a batch of hosts."""

    reports: tuple[PackedReport, ...]
    ignored: Mapping[str, tuple[Ignored, ...]]


def _judging(asked: RecordedHosts, how: Rejudge) -> Callable[[Sequence[str]], _Judged]:
    """A function that judges a batch of hosts, in a process with its own store."""
    from nodevet.store import open_store

    store = open_store(how.store, create=False)
    hosts = {host.name: host for host in asked.hosts}
    sections = sections_of(how.context)
    pack = Packer().pack
    # a check of one's own may change anything
    alike = None if sections is None else LastFew()

    def judge(names: Sequence[str]) -> _Judged:
        look = RecordedLook(store, asked.run.id) if how.context.since is not None else None
        context = replace(how.context, since=look)
        evidence = {
            visit.host: (visit, kept)
            for visit, kept in store.kept_evidence(asked.run.id, hosts=names, sections=sections)
        }
        reports = []
        for name in names:
            report = _judged_again(evidence.get(name), hosts[name], context, alike)
            reports.append(pack(report))
        return _Judged(tuple(reports), look.by_host if look else {})

    return judge


def _unjudged_hosts(names: Sequence[str]) -> _Judged:
    reports = [HostReport(host=name, status=Status.PROBE_FAILED, why=LOST) for name in names]
    return _Judged(tuple(map(Packer().pack, reports)), {})


def _judged_again(
    found: "tuple[RecordedVisit, KeptEvidence | None] | None",
    host: Host,
    context: VetContext,
    alike: LastFew | None,
) -> HostReport:
    """The report of a recorded visit by the baselines of today."""
    if found is None:
        return judge_visit(Visit(host.name, Status.PROBE_FAILED, NOT_VISITED), host, context).report
    recorded_visit, kept = found
    visit = visit_of(recorded_visit, has_evidence=kept is not None)
    if kept is None:
        return judge_visit(visit, host, context).report
    earlier = context.since.read(host.name) if context.since else ""
    reopen = partial(kept.open_evidence, alike)
    return judge_visit(visit, host, context, earlier, reopen=reopen).report


def visit_of(visit: RecordedVisit, *, has_evidence: bool) -> Visit:
    """A recorded visit as it was; a visit whose evidence was pruned cannot be judged."""
    status, why = visit.status, visit.why
    if status is Status.VETTED and not has_evidence:
        status, why = Status.PROBE_FAILED, THINNED if visit.thinned else NOT_KEPT
    at = age.seconds_of(visit.arrived) if visit.arrived else None
    return Visit(visit.host, status, why, None, visit.seconds, at)


class RecordedLook(LastLook):
    """The last evidence of hosts before a run."""

    def __init__(self, store: "Store | None", before: str) -> None:
        super().__init__(())
        self._store, self._before = store, before

    def read(self, host: str) -> Evidence | str:
        """See LastLook.read. Raises StoreError."""
        recorded_evidence = (
            self._store.last_evidence(host, before_run=self._before) if self._store else None
        )
        if recorded_evidence is None:
            return NOTHING_BEFORE
        try:
            return open_evidence(recorded_evidence[1])
        except EvidenceError as error:
            return f"run {recorded_evidence[0].run}: {error}"

    @property
    def by_host(self) -> Mapping[str, tuple[Ignored, ...]]:
        return self._ignored
