"""Diagnoses that are made up, for reports: from the nodes of tests/diagnosis."""

import math

from msgspec.structs import replace

from nodevet.diagnose.classify import diagnose
from nodevet.diagnose.model import (
    Cause,
    CauseProof,
    Condition,
    Confidence,
    Diagnosis,
    Figure,
    GpuDiagnosis,
    HostDiagnosis,
    Job,
    JobOwner,
    MissingGpu,
    Points,
    Ruling,
    Straggler,
    Suspect,
    Timeline,
)
from nodevet.diagnose.timelines import timelines
from nodevet.model import Finding, Severity, Status, Subject, Verdict
from tests.diagnosis.samples import CASES, evidence

KINDS = tuple(CASES)
ALICE = JobOwner(uid=1000, login="alice", job="Slurm 12", partition="gpu")


def failed(check: str, actual: object, expected: object, **more: object) -> Finding:
    given = {"verdict": Verdict.FAIL, "check": check, "actual": actual, "expected": expected}
    return Finding(**given, **more)


def wave(seconds: int, low: float, high: float, every: float) -> Points:
    middle, swing = (low + high) / 2, (high - low) / 2
    return tuple(
        (n / 5, round(middle + swing * math.sin(n / 5 / every * 6.3), 1))
        for n in range(seconds * 5)
    )


def lines_of(gpu: int, command: str) -> list[Timeline]:
    def line(name: str, points: Points, unit: str = "%", most: float | None = 100.0) -> Timeline:
        return Timeline(name=name, unit=unit, gpu=gpu, most=most, points=points)

    return [
        line("SM busy", wave(10, 5, 90, 1 + gpu / 3)),
        line("memory busy", wave(10, 2, 40, 1 + gpu / 3)),
        line("GPU memory used", wave(10, 75, 75, 1)),
        line("SM clock", wave(10, 80, 96, 4)),
        line("power", wave(10, 30, 70, 1 + gpu / 3)),
        line("PCIe in", wave(10, 1, 22.4, 2), "GB/s", None),
        line("PCIe out", wave(10, 0, 1.4, 2), "GB/s", None),
        *(line(f"CPU of {command} {4700 + n}", wave(10, 20, 99 - 6 * n, n + 1)) for n in range(8)),
    ]


def host(
    name: str, kinds: tuple[str, ...], command: str = "python", **more: object
) -> HostDiagnosis:
    gpus, lines = [], []
    for index, kind in enumerate(kinds):
        found = diagnose(evidence(CASES[kind]))
        assert not isinstance(found, str)
        jobs = (Job(pid=4711 + index, command=command, memory_b=60 << 30, helpers=8),)
        gpus.append(replace(found[0], index=index, jobs=jobs, uuid=f"GPU-{index}"))
        lines += lines_of(index, command)
    lines += [each for each in timelines(evidence(CASES["idle"])) if each.gpu is None]
    gpu = [Subject(kind="gpu", id=str(n), uuid=f"GPU-{n}") for n in range(8)]
    suspects = tuple(
        Suspect(
            finding=failed("power_limit", 500, 700, unit="W", subject=gpu[n]), gpu=n, fixable=True
        )
        for n in range(4)
    ) + tuple(
        Suspect(finding=failed(check, "x", "y", severity=severity), fixable=fixable)
        for check, severity, fixable in (
            ("cpu_governor", Severity.WARNING, True),
            ("iommu", Severity.INFO, False),
            ("nfs", Severity.CRITICAL, False),
            ("swap", Severity.INFO, True),
            ("numa_topology", Severity.INFO, False),
        )
    )
    given = {
        "status": Status.VETTED,
        "gpus": tuple(gpus),
        "timelines": tuple(lines),
        "suspects": suspects,
        "others": 3,
        "baseline": "h100",
        "began_s": 1.7e9,
        "seconds": 10.0,
        "overhead": 0.31,
        **more,
    }
    return HostDiagnosis(host=name, **given)


def diagnosis(*hosts: HostDiagnosis, **more: object) -> Diagnosis:
    given = {
        "id": "20261122T143223.084Z-7a3e37f7",
        "nodevet": "0.2.0",
        "started": "2026-11-22T14:32:23+00:00",
        "seconds": 10.0,
        "hosts": hosts,
        **more,
    }
    return Diagnosis(**given)


def one() -> Diagnosis:
    """One host, one GPU; nothing of it changes with the rules of a diagnosis or their words."""
    busy = Figure("sm_busy", 20.0, "%", "SM busy")
    hot = Figure("hottest_thread", 95.0, "%", "hottest thread", note="python 10, thread 10")
    power = Figure("power", None, "%", "power draw (of its limit)", why="NVML_ERROR_NOT_SUPPORTED")
    gpu = GpuDiagnosis(
        index=0,
        uuid="GPU-0",
        name="H100",
        cause=Cause.SUBMISSION,
        causes=(Cause.SUBMISSION,),
        confidence=Confidence.HIGH,
        sentence="waits for the thread that submits its work: SM busy 20 %, one thread at 95 %",
        claim="waits for the thread that submits its work",
        proofs=(
            CauseProof(
                cause=Cause.SUBMISSION,
                facts=("SM busy 20 %", "one thread at 95 %"),
                doubts=("it reads 60 MB/s, which takes system time as well",),
            ),
        ),
        next_step="larger batches; fewer small kernels",
        also=("the job may use 16 CPUs (affinity)",),
        figures=(busy, hot, power),
        rulings=(
            Ruling(
                Cause.GPU,
                "the GPU is busy",
                False,
                0.235,
                (Condition(busy, True, 85.0, "NVML", False, 0.235),),
            ),
            Ruling(
                Cause.SUBMISSION,
                "one thread is hot",
                True,
                1.19,
                (
                    Condition(busy, False, 85.0, "NVML", True, 4.25),
                    Condition(hot, True, 80.0, "mpstat", True, 1.19),
                ),
            ),
        ),
        jobs=(Job(pid=4711, command="python", memory_b=60 << 30, helpers=8, owner=ALICE),),
    )
    return diagnosis(replace(host("gpu007", ("submission-bound",)), gpus=(gpu,)))


def fleet() -> Diagnosis:
    """Four hosts of eight GPUs, one that was lost, and a straggler."""
    kinds = (KINDS * 4)[:32]
    hosts = [host(f"gpu{n:03d}", kinds[8 * n : 8 * n + 8], began_s=1.7e9 + n / 4) for n in range(4)]
    lost = HostDiagnosis(host="gpu004", status=Status.UNREACHABLE, why="connection refused")
    alike = host("gpu005", ("idle",) * 8)
    told = Straggler(
        host="gpu001",
        gpu=3,
        sentence="throttled, the others are submission-bound; SM clock 45 %, the others 96 %",
        suspects=("power_limit of GPU 3 is 500 W, expected 700 W",),
    )
    return diagnosis(*hosts, alike, lost, stragglers=(told,), apart_s=0.75)


OWNER = ("login", "job", "step", "partition", "pod", "container", "unit")


def hostile(nasty: tuple[str, ...]) -> Diagnosis:
    """Every text that a node, an inventory or a job gives is hostile."""
    hosts = []
    for text in nasty:
        made = host(text, ("stuck", "submission-bound"), command=text, baseline=text)
        figure = replace(made.gpus[0].figures[0], value=None, why=text)
        gpus = [
            replace(gpu, name=text, sentence=text, also=(text,), figures=(figure, *gpu.figures))
            for gpu in made.gpus
        ]
        proof = CauseProof(cause=Cause.STUCK, facts=(text,), doubts=(text,))
        owner = JobOwner(**dict.fromkeys(OWNER, text))
        job = replace(gpus[1].jobs[0], owner=owner)
        gpus[1] = replace(gpus[1], claim=text, proofs=(proof,), gain=text, jobs=(job,))
        finding = failed(
            "power_limit", text, text, subject=Subject(kind=text, id=text), why=text, unit=text
        )
        rulings = tuple(
            replace(
                ruling,
                conditions=tuple(
                    replace(each, figure=replace(each.figure, note=text))
                    for each in ruling.conditions
                ),
            )
            for ruling in gpus[0].rulings
        )
        gpus[0] = replace(gpus[0], rulings=rulings, cause=Cause.MIXED)
        suspects = (Suspect(finding=finding, fixable=True),)
        missing = (MissingGpu(bus_id=text, facts=(text,), next_step=text),)
        hosts.append(replace(made, gpus=tuple(gpus), suspects=suspects, missing=missing))
        hosts.append(HostDiagnosis(host=f"down {text}", status=Status.UNREACHABLE, why=text))
    told = tuple(Straggler(host=t, gpu=0, sentence=t, suspects=(t,)) for t in nasty)
    return diagnosis(*hosts, stragglers=told, nodevet=nasty[0], id=nasty[1])
