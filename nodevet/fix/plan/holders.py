"""Monitoring clients that hold the GPUs and compute nothing there. Pure.

DCGM's host engine and exporters like it keep /dev/nvidia<N> open as long as they run. They are no
job: a reboot ends them as everything, and what is not about the GPUs themselves does not mind
them. A step that changes a GPU's mode does: it stops their services first and starts them again
last, which the plan shows as actions of its own.
"""

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.processes import Process, Processes, service_of
from nodevet.fix.model import Step
from nodevet.fixing.model import PlannedChange, Risk
from nodevet.resource import kind_of, unit

MONITORS = {  # comm, of which the kernel keeps 15 characters, and the services that start it
    "nv-hostengine": ("nvidia-dcgm.service", "dcgm.service"),
    "dcgm-exporter": ("dcgm-exporter.service", "nvidia-dcgm-exporter.service"),
    "gpud": ("gpud.service",),
    "nvidia_gpu_expo": ("nvidia_gpu_exporter.service", "nvidia-gpu-exporter.service"),
}
"""By service too, since any program can take any name."""


def names(text: str) -> frozenset[str]:
    """Of --holders: a,b."""
    return frozenset(filter(None, (part.strip() for part in text.split(","))))


def monitor(process: Process, gpus: Sequence[Gpu]) -> str:
    """The service of a known monitoring client; empty for anything else, and for one that NVML
    names as computing on a GPU."""
    service = service_of(process)
    if service is None or service not in MONITORS.get(process.command or "", ()):
        return ""
    computes = any(user.pid == process.pid for gpu in gpus for user in gpu.processes or ())
    return "" if computes else service


def is_named(process: Process, harmless: Collection[str]) -> bool:
    """Whether the operator said of a process, by comm, unit or service, that it does no harm."""
    return bool({process.command, process.unit, service_of(process)} & set(harmless))


def spared(evidence: Evidence, harmless: Collection[str], *, monitors: bool) -> frozenset[int]:
    """The ids of processes that are no use of a GPU to wait for."""
    return frozenset(
        process.pid
        for process in _processes(evidence)
        if is_named(process, harmless) or (monitors and monitor(process, _gpus(evidence)))
    )


def needs_them_gone(change: "PlannedChange | Step") -> bool:
    """Whether a change cannot be made while anything holds the GPUs."""
    return change.risk in (Risk.IDLE, Risk.DRAIN) and any(
        kind_of(each).gpu_of(each) for each in change.resources
    )


def to_stop(
    change: PlannedChange, evidence: Evidence, harmless: Collection[str]
) -> tuple[str, ...]:
    """The services of monitoring clients that are in the way of a change."""
    if not needs_them_gone(change):
        return ()
    return tuple(dict.fromkeys(service for service, _ in _holding(change, evidence, harmless)))


def note(change: PlannedChange, evidence: Evidence, harmless: Collection[str]) -> str:
    """What a plan says of those who hold the GPUs of a change."""
    if change.risk is Risk.LIVE:
        return ""
    told = []
    found = dict.fromkeys(service for service, _ in _holding(change, evidence, harmless))
    if found and needs_them_gone(change):
        told.append(f"{', '.join(found)}: stopped before it, and started again after it")
    elif found:
        told.append(f"{', '.join(found)}: may go on holding the GPUs")
    named = dict.fromkeys(
        each.command or f"pid {each.pid}"
        for each in _processes(evidence)
        if is_named(each, harmless)
    )
    if named:
        told.append(f"{', '.join(named)}: said to be harmless by --holders")
    return "; ".join(told)


def around(change: PlannedChange, services: Sequence[str]) -> PlannedChange:
    """A change with services stopped before it and started again after it."""
    if not services:
        return change
    return replace(
        change,
        actions=(
            *unit.stop(services),
            *change.actions,
            *unit.start(services),
        ),
        resources=(*change.resources, *unit.resources(services)),
    )


def fault(step: Step) -> str:
    """Why a step does not stop and start its holders as `around` has it; empty if it does."""
    count = len(step.holders)
    if not count:
        return ""
    first, middle, last = step.actions[:count], step.actions[count:-count], step.actions[-count:]
    around = (unit.stop(step.holders), unit.start(step.holders))
    if (first, last) != around or unit.without(middle, step.holders) != middle:
        return f"it does not just stop and start {', '.join(step.holders)} around what it does"
    return ""


def _holding(
    change: PlannedChange, evidence: Evidence, harmless: Collection[str]
) -> Iterator[tuple[str, Process]]:
    """Known monitoring clients on the GPUs of a change, with their services."""
    gpus = _gpus(evidence)
    minors = {gpu.minor_number for gpu in gpus if not change.gpus or gpu.uuid in change.gpus}
    for process in _processes(evidence):
        service = monitor(process, gpus)
        held = process.gpu_minors is None or not minors or minors & set(process.gpu_minors)
        if service and held and not is_named(process, harmless):
            yield service, process


def _processes(evidence: Evidence) -> tuple[Process, ...]:
    return ((data := evidence[Processes].data) and data.processes) or ()


def _gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    return ((data := evidence[Gpus].data) and data.gpus) or ()
