"""From hosts to a run of reports: visits are judged as they come in."""

import gc
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial

from msgspec import UNSET

from nodevet import __version__
from nodevet.base import last_verdict
from nodevet.checking.identity import same_machine_reports
from nodevet.fleet import Options, Visit
from nodevet.model import Host, HostReport, Severity, Status
from nodevet.model.run import Run, new_run_id
from nodevet.vet.packed import FEW, PackedHosts, PackedReport
from nodevet.vet.use.beside import visit_beside
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import NOT_REACHED, Save, Vetted, judge_visit, recorded
from nodevet.vet.use.judges import Judges, judges_of_saved, judges_worth
from nodevet.vet.use.listener import VetListener


def vet(
    hosts: Sequence[Host],
    context: VetContext,
    options: Options,
    *,
    fail_on: Severity,
    save: Save | None = None,
    listener: VetListener | None = None,
    earlier: Sequence[HostReport] = (),
    processes: int | None = None,
) -> Run:
    """Visit the hosts and judge each as it comes in. A KeyboardInterrupt ends the run early.

    `earlier`: see `collect`. `processes`: that judge; 0: this one, None: by the number of hosts."""
    return _judged_run(
        hosts,
        lambda judges: visit_beside(hosts, replace(options, side_work=judges), context),
        context,
        judges_worth(len(hosts)) if processes is None else processes,
        save=save,
        fail_on=fail_on,
        listener=listener,
        earlier=earlier,
    )


def vet_saved(
    hosts: Sequence[Host],
    visits: Iterable[Visit],
    context: VetContext,
    *,
    fail_on: Severity,
    listener: VetListener | None = None,
) -> Run:
    """Judge saved visits of these hosts; visits none."""
    return _judged_run(
        hosts,
        lambda _: (visit for visit in visits),
        context,
        judges_of_saved(len(hosts)),
        fail_on=fail_on,
        listener=listener,
        replayed=True,
    )


def _judged_run(
    hosts: Sequence[Host],
    visits_of: Callable[[Judges | None], Generator[Visit]],
    context: VetContext,
    processes: int,
    *,
    fail_on: Severity,
    save: Save | None = None,
    listener: VetListener | None = None,
    replayed: bool = False,
    earlier: Sequence[HostReport] = (),
) -> Run:
    """The run of these visits. `processes`: how many other processes judge them; 0: this process
    does."""
    by_name, listener = {host.name: host for host in hosts}, listener or VetListener()
    judging = Judges(by_name, context, listener, processes, save) if processes else nullcontext()
    with judging as judges:
        visits = visits_of(judges)
        if judges is None:
            judged = reports(visits, by_name, context, save, listener)
        else:
            judged = judges.judge_all(visits)
        return collect(
            hosts,
            judged,
            context,
            fail_on=fail_on,
            replayed=replayed,
            listener=listener,
            earlier=earlier,
            judges=judges,
        )


def collect(
    hosts: Sequence[Host],
    reports: Generator[HostReport] | Generator[HostReport | PackedReport],
    context: VetContext,
    *,
    fail_on: Severity,
    replayed: bool = False,
    interrupted: bool = False,
    listener: VetListener | None = None,
    earlier: Sequence[HostReport] = (),
    judges: Judges | None = None,
) -> Run:
    """The run of these reports; a KeyboardInterrupt ends it early.

    `interrupted`: whether the original run was. `earlier`: the reports of a resumed run's other
    hosts. `judges`: what delivers more reports, at any time.
    """
    listener = listener or VetListener()
    started, clock = datetime.now().astimezone(), time.monotonic()
    run_id = new_run_id(started)
    done = PackedHosts(earlier)
    names = (*done.names, *(host.name for host in hosts))

    def result() -> Run:
        return Run(
            id=run_id,
            nodevet=__version__,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 3),
            fail_on=fail_on,
            interrupted=interrupted,
            replayed=replayed,
            only=context.only or UNSET,
            skip=context.skip or UNSET,
            baselines=_hashes(context, {host.baseline for host in done.summaries} - {""}),
            hosts=done.ordered(names),
        )

    def take(*hosts: HostReport) -> None:
        for host in hosts:
            done.put(host)
            listener.took(host)

    def deliver(report: HostReport | PackedReport) -> None:
        if isinstance(report, HostReport):
            take(report)
            listener.advanced(report.host)
            return
        done.keep(report)
        listener.took_packed(report.summary.host, partial(done.unpack, report))
        listener.advanced(report.summary.host)

    if judges is not None:
        judges.deliver, judges.run = deliver, run_id
    listener.began(result(), names)
    if len(hosts) > FEW:
        gc.freeze()  # what is there stays: looking for garbage in it takes longer than to judge
    try:
        with closing(reports):
            listener.visiting()
            for report in reports:
                deliver(report)
        listener.visited()
    except KeyboardInterrupt:
        interrupted = True
        listener.visited()
    take(*same_machine_reports(done.summaries, done.get))
    take(*missing(hosts, frozenset(done.names)))
    run = result()
    if run.exit_code and not replayed and any(host.local for host in hosts):
        last_verdict.forget()
    listener.ended(run)
    return run


def _hashes(context: VetContext, used: Set[str]) -> dict[str, str]:
    hashes = {one.label: one.sha256 for one in context.baselines if one.label in used}
    if used - hashes.keys():
        hashes |= {one.name: one.sha256 for one in context.shipped_baselines() if one.name in used}
    return hashes


def reports(
    visits: Iterator[Visit],
    hosts: Mapping[str, Host],
    context: VetContext,
    save: Save | None = None,
    listener: VetListener | None = None,
) -> Generator[HostReport]:
    """The report of every visit as it comes in; see `vetted`."""
    with closing(vetted(visits, hosts, context, save)) as hosts_vetted:
        for one in hosts_vetted:
            if listener is not None and one.evidence is not None:
                listener.decoded(one.report.host, one.evidence)
            yield one.report


def vetted(
    visits: Iterator[Visit],
    hosts: Mapping[str, Host],
    context: VetContext,
    save: Save | None = None,
) -> Generator[Vetted]:
    """Judge every visit as it comes in, after `save`.

    Hosts that the run did not reach are saved as not reached, so that older evidence of them is not
    mistaken for new.
    """
    unvisited = dict(hosts)
    try:
        for visit in visits:
            host = unvisited.pop(visit.host)
            earlier = recorded(visit, context)  # before `save` replaces its file
            if save is not None:
                save(visit, host)
            yield judge_visit(visit, host, context, earlier)
    finally:
        if isinstance(visits, Generator):
            visits.close()
        if save is not None:
            for host in unvisited.values():
                save(Visit(host.name, Status.INTERRUPTED, NOT_REACHED), host)


def missing(hosts: Iterable[Host], done: Set[str]) -> Iterator[HostReport]:
    """A report for every host that a run did not get to."""
    for host in hosts:
        if host.name not in done:
            yield HostReport(host=host.name, status=Status.INTERRUPTED, why=NOT_REACHED)
