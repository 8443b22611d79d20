"""Judge the visits of a run in processes beside the one that visits, records and reports: its one
core would be the limit of a fleet.

They are forked, so that they have the checks and baselines that this process read. They are not the
processes that speak SSH: a check of a project may take seconds, and there it would hold up a
hundred hosts; and a launcher's machine does not have the project's checks.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nodevet.base.processes import KilledProcess, Workers, cores
from nodevet.fleet import Visit
from nodevet.model import Host, HostReport, Status
from nodevet.vet.packed import PackedReport, Packer
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import NOT_REACHED, Save, blank_report, judge_visit, recorded
from nodevet.vet.use.listener import Prepare, VetListener

if TYPE_CHECKING:  # a run without --since does not pay for it
    from nodevet.vet.use.last_look import Ignored

WORTH = 200  # hosts, from which on processes of their own are worth starting
MOST = 16  # processes
AHEAD = 4  # visits of each process that wait or are judged
LOST = "the process that judged it was killed, twice"
Deliver = Callable[[HostReport | PackedReport], None]


class _JudgedVisit(NamedTuple):
    """The report of a visit, what the last look ignored of it, and its rows for the store."""

    report: PackedReport
    ignored: "tuple[Ignored, ...]" = ()
    prepared: Any = None  # as of VetListener.preparing


class _VisitJob(NamedTuple):
    """A visit with evidence, and the run that it belongs to."""

    visit: Visit
    run: str


def judges_worth(hosts: int) -> int:
    """How many processes judge a run of so many hosts. 0: the process that visits the hosts judges
    them, too. With two cores, the processes that speak SSH need both."""
    return min(MOST, cores() // 2) if hosts >= WORTH and cores() > 2 else 0


def judges_of_saved(hosts: int) -> int:
    """As `judges_worth`, where nothing else needs the cores."""
    return min(MOST, cores()) if hosts >= WORTH and cores() > 1 else 0


class Judges:
    """The processes that judge the visits of a run: side work of the visits (fleet.Options). Use it
    in a `with`.

    `deliver` gets each report as it is done. It must be set before the first visit.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        context: VetContext,
        listener: VetListener,
        processes: int,
        save: Save | None = None,
    ) -> None:
        self.deliver: Deliver = lambda report: None
        self.run = ""  # its id
        self._hosts, self._context, self._listener, self._save = hosts, context, listener, save
        self._unsaved = dict(hosts) if save is not None else {}
        self._most = AHEAD * processes
        prepare = listener.preparing()
        self._workers: Workers[_VisitJob, _JudgedVisit] = Workers(
            lambda: _judging(hosts, context, prepare),
            processes,
            on_killed=self._tell_killed,
            lost_result=self._lost_host,
        )

    def __enter__(self) -> "Judges":
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.end()

    @property
    def pipes(self) -> Sequence[Any]:
        """As of nodevet.fleet.model.SideWork."""
        return self._workers.pipes

    def take_ready(self, *, wait: bool = False) -> None:
        """Save and deliver the reports that are done."""
        for job, judged in self._workers.take(wait=wait):
            self._save_visit(job.visit)
            if self._context.since is not None:
                self._context.since.add_ignored(job.visit.host, judged.ignored)
            if judged.prepared is not None:
                self._listener.prepared(judged.prepared)
            self.deliver(judged.report)

    def judge_all(self, visits: Generator[Visit]) -> Generator[HostReport]:
        """Let every visit be judged. Yields the reports of those without evidence.

        As of `vetted`, hosts that the run did not reach are saved so. An interrupt ends the visits;
        what was visited is still judged.
        """
        try:
            with closing(visits):
                for visit in visits:
                    if visit.evidence is not None:
                        self._put(visit)
                        continue
                    self._save_visit(visit)
                    yield blank_report(visit, self._hosts[visit.host])
            self._finish()
        except KeyboardInterrupt:
            self._finish()
            raise
        finally:
            for name in list(self._unsaved):
                self._save_visit(Visit(name, Status.INTERRUPTED, NOT_REACHED))

    def _save_visit(self, visit: Visit) -> None:
        if self._save is not None:
            self._save(visit, self._hosts[visit.host])
            self._unsaved.pop(visit.host, None)

    def _put(self, visit: Visit) -> None:
        self._workers.put(_VisitJob(visit, self.run))
        self.take_ready()
        while self._workers.unfinished >= self._most:
            self.take_ready(wait=True)

    def _finish(self) -> None:
        while self._workers.unfinished:
            self.take_ready(wait=True)

    def _tell_killed(self, killed: KilledProcess, job: _VisitJob) -> None:
        outcome = "another one judges it" if killed.again else "it is not judged"
        host = job.visit.host
        self._listener.warned(
            f"process {killed.pid}, which judged {host}, was {killed.why}: {outcome}"
        )

    def _lost_host(self, job: _VisitJob) -> _JudgedVisit:
        blank = blank_report(job.visit, self._hosts[job.visit.host])
        lost = msgspec.structs.replace(blank, status=Status.PROBE_FAILED, why=LOST)
        return _JudgedVisit(Packer().pack(lost))


def _judging(
    hosts: Mapping[str, Host], context: VetContext, prepare: Callable[[], Prepare] | None
) -> Callable[[_VisitJob], _JudgedVisit]:
    """A function that judges a visit, in a process with its own connections to the store."""
    look = context.since.in_this_process() if context.since else None
    context = msgspec.structs.replace(context, since=look)
    pack, prepared = Packer().pack, prepare() if prepare else None

    def judge(job: _VisitJob) -> _JudgedVisit:
        visit = job.visit
        vetted = judge_visit(visit, hosts[visit.host], context, recorded(visit, context))
        ignored = look.ignored_of(visit.host) if look else ()
        rows = (
            prepared(vetted.report, visit.evidence, vetted.evidence, job.run) if prepared else None
        )
        return _JudgedVisit(pack(vetted.report), ignored, rows)

    return judge
