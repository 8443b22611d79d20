"""Watch hosts at the same time, and diagnose what each of their GPUs waits for."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace as changed
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodevet import __version__
from nodevet.base.host_names import NAME
from nodevet.baseline.library import shipped_folder
from nodevet.checking.identity import machine_in, several_names
from nodevet.checking.machines import Machine
from nodevet.diagnose import phrases
from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.incident import NEEDED
from nodevet.diagnose.job_ranks import HostRanks, host_ranks
from nodevet.diagnose.late_ranks import are_waiting, job_diagnosis, with_waits
from nodevet.diagnose.missing import missing_gpus
from nodevet.diagnose.model import (
    Cause,
    Diagnosis,
    GpuDiagnosis,
    HostDiagnosis,
    JobTarget,
    MissingGpu,
    Straggler,
    Suspect,
)
from nodevet.diagnose.ras_port import ANSWER_S, RasPort
from nodevet.diagnose.rules import NEXT
from nodevet.diagnose.stragglers import stragglers
from nodevet.diagnose.suspects import REASONS, suspect
from nodevet.diagnose.timelines import timelines
from nodevet.evidence.activity import Look
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.gpu_activity import GpuActivities
from nodevet.evidence.host import HostInfo
from nodevet.evidence.host_activity import HostActivity
from nodevet.evidence.process_activity import ProcessActivities, WatchCost
from nodevet.fleet import Options, Visit, visit
from nodevet.model import Finding, Host, Status, Verdict
from nodevet.model.run import new_run_id
from nodevet.vet.use.asks import sections_of
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.judge_visit import judge_visit

SECTIONS = ("gpu_activity", "host_activity", "process_activity")
TOGETHER_S = 8.0  # from now until several hosts begin: to connect, and to read what they are


def watch_options(
    options: Options,
    seconds: float,
    interval: float,
    *,
    together: bool,
    now: float,
    job: JobTarget | None = None,
    ras: RasPort | None = None,
) -> Options:
    """The same visit, in which the node is watched for so many seconds too.

    `together`: at the same moment as others, a few seconds after `now`, by the nodes' clocks.
    `job`: the processes of this job that use no GPU are watched as well. `ras`: NCCL's RAS port of
    the job is asked, too.
    """
    wish: dict[str, Any] = {"seconds": seconds, "interval": interval, "at_s": None}
    wish["job_ids"] = list(job.ids) if job else []
    longer = seconds
    if together:
        wish["at_s"] = round(now + TOGETHER_S, 3)
        longer += TOGETHER_S
    asks: Mapping[str, Sequence[Any]] = {
        **options.asks,
        **dict.fromkeys(SECTIONS, (wish,)),
    }
    if ras:
        asks = {**asks, "nccl_ras": ({**wish, **ras.wish(job)},)}
        longer += ANSWER_S
        options = changed(options, second_try=False)  # each visit asks twice
    return changed(
        options,
        asks=asks,
        deadline=options.deadline + longer,
        probe_deadline=options.probe_seconds + longer,
    )


def judged_alone(options: Options, context: VetContext) -> Options:
    """The options of a visit whose evidence nobody keeps: the probe compiles and reads only the
    sections of a diagnosis, and of the checks that can name a suspect; the kernel log, because it
    tells of lost GPUs."""
    read = sections_of(context, REASONS)
    if read is None:
        return options
    return changed(options, sections=tuple(sorted({*read, *NEEDED, "kernel_log"})))


def diagnose_hosts(
    hosts: Sequence[Host],
    context: VetContext,
    options: Options,
    *,
    seconds: float,
    interval: float = 1.0,
    save: Callable[[Visit, Host], None] | None = None,
    done: Callable[[], None] = lambda: None,
    job: JobTarget | None = None,
    again: Callable[[JobTarget], JobTarget] = lambda job: job,
    ras: RasPort | None = None,
) -> Diagnosis:
    """Watch the hosts, all of them at the same time, and diagnose each. `again` returns the job
    with how it has changed meanwhile."""
    started = datetime.now().astimezone()
    fleet_options = watch_options(
        options if save else judged_alone(options, context),
        *(seconds, interval),
        together=len(hosts) > 1,
        now=time.time(),
        job=job,
        ras=ras,
    )
    by_name = {host.name: host for host in hosts}
    by_host: dict[str, HostDiagnosis] = {}
    observations = Observations(job)
    interrupted = False
    try:
        with closing(visit(hosts, fleet_options)) as visits:
            for answer in visits:
                if save:
                    save(answer, by_name[answer.host])
                by_host[answer.host] = host_diagnosis(
                    answer, by_name[answer.host], context, observations.record
                )
                done()
    except KeyboardInterrupt:
        interrupted = True
    observations.job = job and again(job)
    return incident(
        name_twins(
            [by_host[host.name] for host in hosts if host.name in by_host], observations.machines
        ),
        seconds=seconds,
        started=started,
        interrupted=interrupted,
        observations=observations,
    )


class Observations:
    """Machines and ranks that the evidence of all hosts shows."""

    def __init__(self, job: JobTarget | None = None) -> None:
        self.job = job
        self.machines: list[Machine] = []
        self.ranks: dict[str, HostRanks] = {}

    def record(self, evidence: Evidence, host: HostDiagnosis) -> None:
        self.machines.append(machine_in(host.host, evidence))
        if self.job:
            self.ranks[host.host] = host_ranks(evidence, host, self.job)


def diagnose_visits(
    visits: Iterable[tuple[Visit, Host]],
    context: VetContext,
    *,
    started: datetime | None = None,
    job: JobTarget | None = None,
) -> Diagnosis:
    """Diagnose a saved incident bundle."""
    observations = Observations(job)
    hosts = [host_diagnosis(answer, host, context, observations.record) for answer, host in visits]
    hosts = name_twins(hosts, observations.machines)
    longest = max((host.seconds for host in hosts), default=0.0)
    began = min((host.began_s for host in hosts if host.began_s), default=None)
    when = started or _moment(began)
    when = when or datetime.now().astimezone()
    return incident(hosts, seconds=longest, started=when, observations=observations)


def _moment(seconds: float | None) -> datetime | None:
    """A time by a node's clock, which may be wrong; None if it is not a valid time."""
    try:
        return datetime.fromtimestamp(seconds).astimezone() if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


def incident(
    hosts: Sequence[HostDiagnosis],
    *,
    seconds: float,
    started: datetime,
    interrupted: bool = False,
    observations: Observations | None = None,
) -> Diagnosis:
    """All hosts together, with the stragglers among them, or the ranks of one job."""
    starts = [host.began_s for host in hosts if host.began_s is not None]
    diagnosis = Diagnosis(
        id=new_run_id(started),
        nodevet=__version__,
        started=started.isoformat(timespec="seconds"),
        seconds=seconds,
        apart_s=round(max(starts) - min(starts), 3) if len(starts) > 1 else None,
        hosts=tuple(hosts),
        stragglers=stragglers(hosts),
        interrupted=interrupted,
    )
    return (
        of_job(diagnosis, observations.job, observations.ranks)
        if observations and observations.job
        else diagnosis
    )


NOT_KNOWN = "neither -i nor the targets name it"


def of_job(diagnosis: Diagnosis, target: JobTarget, ranks: Mapping[str, HostRanks]) -> Diagnosis:
    """The diagnosis with its ranks, and of the job alone."""
    watched = {host.host: host for host in diagnosis.hosts}
    unseen = {
        name: phrases.no_diagnosis(watched[name]) if name in watched else NOT_KNOWN
        for name in target.hosts
        if name not in watched or not watched[name].gpus
    }
    seen = {name: found for name, found in ranks.items() if name not in unseen}
    apart = (diagnosis.apart_s or 0.0) / (diagnosis.seconds or 1.0)
    job = job_diagnosis(target, diagnosis.hosts, seen, unseen, apart)
    late = {(rank.host, gpu) for rank in job.late_ranks for gpu in rank.gpus}
    never = [
        HostDiagnosis(host=name, status=Status.NOT_VISITED, why=why)
        for name, why in unseen.items()
        if name not in watched
    ]
    return replace(
        diagnosis,
        hosts=(*with_waits(diagnosis.hosts, job), *never),
        stragglers=tuple(
            _awaited(odd, is_awaited=are_waiting(job.late_ranks, job.ranks))
            for odd in diagnosis.stragglers
            if (odd.host, odd.gpu) in late
        ),
        job=job,
    )


def _awaited(straggler: Straggler, *, is_awaited: bool) -> Straggler:
    """The straggler; if the others wait for it, without the cause that each has by itself."""
    first, *rest = straggler.sentence.split("; ")
    if not is_awaited:
        return straggler
    cause = first.partition(", the other")[0]
    return replace(straggler, sentence="; ".join([f"{cause}, the others wait for it", *rest]))


def name_twins(hosts: Iterable[HostDiagnosis], machines: Iterable[Machine]) -> list[HostDiagnosis]:
    """The same hosts; hosts that are one machine under several names say only that."""
    twice = several_names(machines)
    return [
        HostDiagnosis(host=host.host, status=host.status, why=twice[host.host])
        if host.host in twice
        else host
        for host in hosts
    ]


NO_GPU = "NVML lists no GPU"


def host_diagnosis(
    answer: Visit,
    host: Host,
    context: VetContext,
    record: Callable[[Evidence, HostDiagnosis], None] = lambda *_: None,
) -> HostDiagnosis:
    """One host: what its GPUs wait for, and which of its settings differ from the baseline.

    `record` is called with the evidence, if there is any, and with the diagnosis."""
    vetted = judge_visit(answer, host, context)
    report = vetted.report
    blank = HostDiagnosis(host=answer.host, status=report.status, why=report.why)
    if vetted.evidence is None:
        return blank
    looks = _looks(vetted.evidence)
    began = _began(answer, vetted.evidence, looks)
    result = diagnose(vetted.evidence, began)
    failed = [
        finding
        for finding in report.findings
        if finding.verdict is Verdict.FAIL and not finding.cause
    ]
    suspects = tuple(_suspects(failed, vetted.evidence, context))
    counts = says_how_many(report.baseline, context)
    missing = missing_gpus(vetted.evidence, report.findings, counts=counts)
    diagnosis = replace(
        blank,
        baseline=report.baseline,
        missing=missing,
        suspects=suspects,
        others=len(failed) - len(suspects),
        began_s=began,
        seconds=max((look.seconds for look in looks), default=0.0),
        timelines=timelines(vetted.evidence),
        **_costs(vetted.evidence, looks),
    )
    diagnosis = (
        replace(diagnosis, why=result or NO_GPU)
        if isinstance(result, str) or not result
        else replace(diagnosis, gpus=without_new_jobs(result, missing, host.name))
    )
    record(vetted.evidence, diagnosis)
    return diagnosis


def without_new_jobs(
    gpus: Sequence[GpuDiagnosis], missing: Sequence[MissingGpu], host: str
) -> tuple[GpuDiagnosis, ...]:
    """The GPUs; on a node to drain, no idle one asks for work, and the commands name the node."""
    lost = [phrases.label([gpu]) for gpu in gpus if gpu.cause is Cause.LOST]
    why = f"{lost[0]} is lost" if lost else "a GPU is missing" if missing else ""
    if not why:
        return tuple(gpus)
    step = (
        f"nothing to fix on this GPU; start no job on it either, as the node must be drained: {why}"
    )
    name = host if NAME.fullmatch(host) else "HOST"
    steps = [
        step if gpu.next_step == NEXT[Cause.IDLE] else gpu.next_step.replace("HOST", name)
        for gpu in gpus
    ]
    return tuple(replace(gpu, next_step=step) for gpu, step in zip(gpus, steps, strict=True))


def says_how_many(label: str, context: VetContext) -> bool:
    """Whether a site wrote or chose this baseline. A shipped one that nodevet chose by the model of
    the GPUs has the number of the usual board; a virtual machine may hold a part of one."""
    if context.chosen is not None:
        return True
    used = (
        Path(baseline.path).absolute() for baseline in context.baselines if baseline.label == label
    )
    return any(path.parent != shipped_folder() for path in used)


def _looks(evidence: Evidence) -> list[Look]:
    gpus, host, processes = (
        evidence[GpuActivities].data,
        evidence[HostActivity].data,
        evidence[ProcessActivities].data,
    )
    looks = [data.look for data in (gpus, host, processes) if data is not None]
    return [look for look in looks if look is not None]


def _costs(evidence: Evidence, looks: Sequence[Look]) -> dict[str, float | None]:
    """The CPU time of the visit, in parts; only that of the looks if the probe counted no more."""
    seconds = max((look.seconds for look in looks), default=0.0)
    if not seconds:
        return {}
    spent = sum(look.cost_s for look in looks)
    data = evidence[ProcessActivities].data
    cost = (data.cost if data else None) or WatchCost()
    rest = None if cost.probe_s is None else max(0.0, cost.probe_s - spent)
    parts = {"looks_s": spent, "login_s": cost.login_s, "rest_s": rest}
    whole = sum(part for part in parts.values() if part is not None)
    return {**parts, "overhead": round(100 * whole / seconds, 2)}


def _began(answer: Visit, evidence: Evidence, looks: Sequence[Look]) -> float | None:
    """When watching began, by this machine's clock, because the node's may be wrong."""
    if not looks:
        return None
    began = min(look.began_s for look in looks)
    data = evidence[HostInfo].data
    if data is None or data.clock_s is None or data.asked_s is None:
        return began
    return began - (data.clock_s - data.asked_s)


def _suspects(
    failed: Iterable[Finding], evidence: Evidence, context: VetContext
) -> Iterable[Suspect]:
    """The findings that can make a GPU slow."""
    data = evidence[Gpus].data
    numbers = {gpu.uuid: gpu.index for gpu in (data.gpus if data else None) or () if gpu.uuid}
    for finding in failed:
        gpu = numbers.get(finding.subject.stable_id)
        fixable = finding.check in context.catalog.fixes
        if line := suspect(finding, gpu=gpu, fixable=fixable):
            yield line
