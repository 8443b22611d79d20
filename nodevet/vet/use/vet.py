"""From hosts to a run of reports: visits are judged as they come in."""

import gc
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from datetime import datetime
from functools import partial

import msgspec
from msgspec import UNSET

from nodevet import __version__
from nodevet.base import age, last_verdict
from nodevet.baseline import choose, none_fits
from nodevet.baseline.choose import CHECK
from nodevet.checking.facts import facts_of
from nodevet.checking.identity import judge_hostname, own_gpus, same_machine_reports
from nodevet.checking.judge import judge
from nodevet.evidence.document import Evidence, EvidenceError, opened
from nodevet.evidence.host import HostInfo
from nodevet.fleet import Options, Visit
from nodevet.model import SHADOW, Finding, Host, HostReport, Severity, Status, unknown
from nodevet.model.baseline import Baseline
from nodevet.model.run import Run, new_run_id
from nodevet.vet.packed import FEW, PackedHosts, PackedReport
from nodevet.vet.use.beside import visit_beside
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.max_age import MaxAge

JUDGING = 5.0  # seconds of CPU time for one host; a large one takes some hundredths
GENERIC = "generic"
NOT_REACHED = "the run was ended before this host was done"
Save = Callable[[Visit, Host], None]


def vet(
    hosts: Sequence[Host],
    context: VetContext,
    options: Options,
    *,
    fail_on: Severity,
    save: Save | None = None,
    listener: VetListener | None = None,
    earlier: Sequence[HostReport] = (),
) -> Run:
    """Visit the hosts and judge each as it comes in. A KeyboardInterrupt ends the run early.

    `earlier`: see `collect`."""
    by_name = {host.name: host for host in hosts}
    visits = visit_beside(hosts, options, context)
    host_reports = reports(visits, by_name, context, save, listener)
    return collect(
        hosts, host_reports, context, fail_on=fail_on, listener=listener, earlier=earlier
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
    host_reports = reports(iter(visits), {host.name: host for host in hosts}, context)
    return collect(hosts, host_reports, context, fail_on=fail_on, replayed=True, listener=listener)


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
) -> Run:
    """The run of these reports; a KeyboardInterrupt ends it early.

    `interrupted`: whether the original run was. `earlier`: the reports of a resumed run's other
    hosts.
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

    listener.began(result(), names)
    if len(hosts) > FEW:
        gc.freeze()  # what is there stays: looking for garbage in it takes longer than to judge
    try:
        with closing(reports):
            listener.visiting()
            for report in reports:
                if isinstance(report, HostReport):
                    take(report)
                    listener.advanced(report.host)
                    continue
                done.keep(report)
                listener.took_packed(partial(done.unpack, report))
                listener.advanced(report.summary.host)
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
        hashes |= {one.name: one.sha256 for one in context.shipped() if one.name in used}
    return hashes


class Vetted(msgspec.Struct, frozen=True, kw_only=True):
    """One host's report and its evidence; None without usable evidence."""

    report: HostReport
    evidence: Evidence | None = None


def recorded(visit: Visit, context: VetContext) -> Evidence | str:
    """The earlier evidence of a host, or why it cannot be used."""
    if context.since is None or visit.evidence is None:
        return ""
    return context.since.read(visit.host)


def judge_visit(
    visit: Visit,
    host: Host,
    context: VetContext,
    earlier: Evidence | str = "",
    *,
    reopen: Callable[[], Evidence] | None = None,
) -> Vetted:
    """One visit, decoded once and judged; without usable evidence it keeps status and reason.

    `earlier`: see `recorded`. `reopen` opens the evidence of a visit that does not hold it; raises
    EvidenceError.
    """
    blank = HostReport(
        host=visit.host,
        status=visit.status,
        why=visit.why,
        first_try=visit.first or msgspec.UNSET,
        seconds=round(visit.seconds, 3),
        groups=tuple(sorted(host.groups)),
        arrived=age.instant(visit.at),
    )
    if visit.evidence is None and reopen is None:
        return Vetted(report=blank)
    try:
        evidence = reopen() if reopen else opened(visit.evidence or b"")
    except EvidenceError as error:
        failed = msgspec.structs.replace(blank, status=Status.PROBE_FAILED, why=str(error))
        return Vetted(report=failed)
    if context.since is not None:
        evidence = context.since.compared(visit.host, evidence, earlier)
    return Vetted(report=_judged(evidence, blank, host, context), evidence=evidence)


def _judged(evidence: Evidence, blank: HostReport, host: Host, context: VetContext) -> HostReport:
    data = evidence[HostInfo].data
    hostname_finding = judge_hostname(host, evidence)
    known = msgspec.structs.replace(
        blank,
        machine_id=data.machine_id if data else None,
        boot_id=data.boot_id if data else None,
        gpu_uuids=own_gpus(evidence) or msgspec.UNSET,
        clock=age.instant(data.clock_s if data else None),
        findings=(hostname_finding,) if hostname_finding else (),
        facts=facts_of(evidence),
    )
    if context.age and (why := _too_old(known, context.age)):
        old = unknown(why=why, check=age.CHECK, advice=age.ADVICE)
        return msgspec.structs.replace(known, findings=(old,))
    baseline, none = chosen_baseline(evidence, host, context)
    if none:
        known = msgspec.structs.replace(known, findings=(*known.findings, none))
    if baseline is None:
        return known
    findings = judge_by(baseline, evidence, blank.host, context)
    counted = (one for one in findings if one.severity is not SHADOW)
    return msgspec.structs.replace(
        known,
        baseline=baseline.label,
        findings=(*known.findings, *counted),
        shadow=tuple(one for one in findings if one.severity is SHADOW) or msgspec.UNSET,
    )


def chosen_baseline(
    evidence: Evidence, host: Host, context: VetContext
) -> tuple[Baseline | None, Finding | None]:
    """The baseline that judges a host, if any, and the finding that none could be chosen."""
    baseline = context.chosen or choose(context.baselines, evidence, host)
    if isinstance(baseline, Baseline):
        return baseline, None
    least = _stand_in(evidence, host, context)
    stand_in = f"; until then judged by the shipped {least.name}" if least else ""
    advice = _what_to_judge_by(least, host)
    return least, unknown(why=baseline + stand_in, check=CHECK, advice=advice)


def judge_by(
    baseline: Baseline, evidence: Evidence, host: str, context: VetContext
) -> tuple[Finding, ...]:
    """The findings of a host by a baseline; the rest is unknown once they take too long."""
    today = context.today
    return judge(evidence, baseline, context.catalog, host=host, today=today, late=_budget())


def _what_to_judge_by(least: Baseline | None, host: Host) -> str:
    """Advice for a host that no baseline fits: use the one that stood in, or write one."""
    target = "@local" if host.local else host.name
    written = f"`nodevet capture {target} -o FILE` writes one of this node as it is"
    return f"if {least.name} is enough, `-b {least.name}`; {written}" if least else written


def _stand_in(evidence: Evidence, host: Host, context: VetContext) -> Baseline | None:
    """The baseline that judges a host if none could be chosen, so that its faults show: a shipped
    one that fits, or on this machine `generic`. The host stays unknown, never ok.
    """
    if none_fits(context.baselines, evidence, host):
        baseline = choose(context.shipped(), evidence, host)
        if isinstance(baseline, Baseline):
            return baseline
    if not host.local:
        return None
    every = (*context.baselines, *context.shipped())
    return next((one for one in every if one.name == GENERIC and one.applies is None), None)


def _too_old(report: HostReport, limit: MaxAge) -> str:
    return age.age_refusal(report.arrived, report.clock, now=limit.now, most=limit.most)


def _budget() -> Callable[[], bool]:
    """Whether judging, from now on, has taken longer than one host may hold up the others.

    No more CPU time has passed than time, which is far cheaper to ask."""
    end, soonest = time.thread_time() + JUDGING, time.monotonic() + JUDGING
    return lambda: time.monotonic() > soonest and time.thread_time() > end


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
