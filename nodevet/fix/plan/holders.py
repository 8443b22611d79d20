"""Monitoring clients that hold the GPUs and compute nothing there. Pure.

DCGM's host engine and exporters like it keep /dev/nvidia<N> open as long as they run. They are not
jobs: a reboot ends them like everything else, and they do not hinder steps that change something
other than the GPUs. A step that changes a GPU's mode stops their services first and starts them
again last; the plan shows these actions.
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


def holder_names(text: str) -> frozenset[str]:
    """The names in --holders: a,b."""
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
    """Whether --holders names the process, by comm, unit or service."""
    return bool({process.command, process.unit, service_of(process)} & set(harmless))


def harmless_pids(
    evidence: Evidence, harmless: Collection[str], *, monitors: bool
) -> frozenset[int]:
    """The pids of processes that do not count as users of a GPU."""
    return frozenset(
        process.pid
        for process in _processes(evidence)
        if is_named(process, harmless) or (monitors and monitor(process, _gpus(evidence)))
    )


def needs_free_gpus(change: "PlannedChange | Step") -> bool:
    """Whether a change fails while anything holds the GPUs."""
    return change.risk in (Risk.IDLE, Risk.DRAIN) and any(
        kind_of(resource).gpu_of(resource) for resource in change.resources
    )


def services_to_stop(
    change: PlannedChange, evidence: Evidence, harmless: Collection[str]
) -> tuple[str, ...]:
    """The services of monitoring clients that must stop for a change."""
    if not needs_free_gpus(change):
        return ()
    return tuple(dict.fromkeys(service for service, _ in _monitors_on(change, evidence, harmless)))


def holders_note(change: PlannedChange, evidence: Evidence, harmless: Collection[str]) -> str:
    """The plan's note about processes that hold the GPUs of a change."""
    if change.risk is Risk.LIVE:
        return ""
    notes = []
    services = dict.fromkeys(service for service, _ in _monitors_on(change, evidence, harmless))
    if services and needs_free_gpus(change):
        notes.append(f"{', '.join(services)}: stopped before it, and started again after it")
    elif services:
        notes.append(f"{', '.join(services)}: may keep the GPUs open")
    commands = dict.fromkeys(
        process.command or f"pid {process.pid}"
        for process in _processes(evidence)
        if is_named(process, harmless)
    )
    if commands:
        notes.append(f"{', '.join(commands)}: harmless according to --holders")
    return "; ".join(notes)


def with_stopped(change: PlannedChange, services: Sequence[str]) -> PlannedChange:
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


def holders_problem(step: Step) -> str:
    """Why a step does not stop and start its holders as `with_stopped` does; empty if it does."""
    count = len(step.holders)
    if not count:
        return ""
    stops, middle, starts = step.actions[:count], step.actions[count:-count], step.actions[-count:]
    around = (unit.stop(step.holders), unit.start(step.holders))
    if (stops, starts) != around or unit.drop_units(middle, step.holders) != middle:
        return f"it does more to {', '.join(step.holders)} than stop it first and start it last"
    return ""


def _monitors_on(
    change: PlannedChange, evidence: Evidence, harmless: Collection[str]
) -> Iterator[tuple[str, Process]]:
    """(service, process) of each known monitoring client on the GPUs of a change."""
    gpus = _gpus(evidence)
    minors = {gpu.minor_number for gpu in gpus if not change.gpus or gpu.uuid in change.gpus}
    for process in _processes(evidence):
        service = monitor(process, gpus)
        uses_gpu = process.gpu_minors is None or not minors or minors & set(process.gpu_minors)
        if service and uses_gpu and not is_named(process, harmless):
            yield service, process


def _processes(evidence: Evidence) -> tuple[Process, ...]:
    return ((data := evidence[Processes].data) and data.processes) or ()


def _gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    return ((data := evidence[Gpus].data) and data.gpus) or ()
