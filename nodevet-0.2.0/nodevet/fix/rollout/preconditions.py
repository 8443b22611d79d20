"""What must hold before a step may write: the same node, and no user that it would disturb."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from nodevet.base.printable import brief
from nodevet.checking.identity import NO_NAME, is_same_name, own_gpus
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.processes import Process, Processes, service_of
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan.holders import MONITORS, harmless_pids, monitor, needs_free_gpus
from nodevet.fixing.model import Risk
from nodevet.model import Baseline
from nodevet.resource import unit
from nodevet.resource.running_process import EndProcess

KEEPER = ("nvidia-persiste", "nvidia-persistenced.service")
"""comm and unit of the one process that does not use a GPU: it only keeps the driver loaded.
By unit too, since any program can take any name."""


def node_mismatch(planned: PlannedNode, evidence: Evidence, *, booted: str | None = None) -> str:
    """Why this is not the planned node in the planned boot; empty if it is.

    `booted`: the expected boot id if nodevet rebooted the node itself.
    """
    host = evidence[HostInfo].data
    if host is None:
        return f"cannot identify the node: {evidence[HostInfo].why}"
    if not host.machine_id or not host.boot_id:
        field = "boot_id" if host.machine_id else "machine_id"
        return f"cannot identify the node: {field}: {host.why(field)}"
    if host.machine_id != planned.machine_id:
        return (
            f"another node under the same name: its machine id is {host.machine_id}, "
            f"the plan was made on {planned.machine_id}"
        )
    if host.boot_id != (booted or planned.boot_id):
        return "rebooted since the plan was made"
    return "" if host.boot_id == planned.boot_id else _clone_reason(planned, evidence)


def _clone_reason(planned: PlannedNode, evidence: Evidence) -> str:
    """Why a node of the same machine id, in another boot, is a clone of the planned one; empty if
    nothing shows it. A boot id belongs to one machine; a machine id may be copied with an image.
    Unknown names and GPUs show nothing."""
    name, gpus = own_name(evidence), own_gpus(evidence)
    if name and planned.hostname and not is_same_name(planned.hostname, name, exact=False):
        return (
            f"another node with the same machine id: its host name is {brief(name)}, the plan "
            f"was made on {brief(planned.hostname)}; check DNS and HostName in ssh_config. If "
            "it was renamed since, set the earlier name with hostnamectl until this is done"
        )
    if gpus and planned.gpus and not set(gpus) & set(planned.gpus):
        return (
            "another node with the same machine id: it has none of the GPUs that the plan was made "
            "on; check DNS and HostName in ssh_config. If all its GPUs were replaced since, this "
            "plan and its runs no longer apply here: look at it by hand"
        )
    return ""


def own_name(evidence: Evidence | None) -> str:
    """The node's own host name; empty if it has none that identifies it."""
    host = evidence[HostInfo].data if evidence else None
    name = (host.hostname if host else None) or ""
    return "" if name.lower() in NO_NAME else name


def baseline_mismatch(plan: Plan, planned: PlannedNode, baseline: Baseline | None) -> str:
    """Why the baseline is not the one that the plan was made with; empty if it is."""
    name = planned.baseline
    if baseline is None:
        return f"the baseline {name} that the plan was made with is not found; name it with -b"
    if baseline.sha256 != plan.baselines.get(name):
        return f"the baseline {name} was changed since the plan was made"
    return ""


def busy_reason(
    step: Step,
    evidence: Evidence,
    services: Collection[str] = (),
    harmless: Collection[str] = (),
    ended: Collection[int] = (),
) -> str:
    """Why a step of this risk may not run while something uses the GPUs; empty if it may.

    The services that the step stops first and starts last do not hinder it. `services`: of the
    other steps; they do not hinder a step that is about services. `harmless`:
    of --holders. Monitoring clients hinder a step that changes the GPUs and does not stop them.
    `ended`: the pids of processes that this step or an earlier one ends.
    """
    if step.risk is Risk.LIVE:
        return ""
    own_services = {
        *unit.stopped_around(step.actions),
        *((*step.services, *services) if step.services else ()),
    }
    spare = harmless_pids(evidence, harmless, monitors=not needs_free_gpus(step))
    spare = spare.union(ended)
    nvml = step.risk is Risk.IDLE
    return "; ".join(users(evidence, step.gpus, nvml=nvml, services=own_services, harmless=spare))


def ended_pids(steps: Iterable[Step], evidence: Evidence) -> frozenset[int]:
    """The pids of running processes that these steps end."""
    ends = {
        (action.pid, action.started_s)
        for step in steps
        for action in step.actions
        if isinstance(action, EndProcess)
    }
    processes = (data.processes if (data := evidence[Processes].data) else None) or ()
    return frozenset(each.pid for each in processes if (each.pid, each.started_s) in ends)


def services_of(steps: Iterable[Step]) -> frozenset[str]:
    return frozenset(name for step in steps for name in step.services)


def users(
    evidence: Evidence,
    uuids: Sequence[str],
    *,
    nvml: bool,
    services: Collection[str] = (),
    harmless: Collection[int] = (),
) -> Iterator[str]:
    """Every use of these GPUs (none named: of any GPU), and every reason why it is not known.

    `spare` are ids of processes that are none. `services`: the services that the step is about;
    their processes do not count. `nvml`: NVML must have listed the processes of each GPU. On a
    drained node only /proc decides, because the driver may be what needs the fix.
    """
    section = evidence[Processes]
    if section.data is None or section.data.processes is None:
        why = section.data.why("processes") if section.data else section.why
        yield f"cannot tell what uses the GPUs: {why}"
        return
    if section.data.complete is not True:
        why = section.data.errors.get("complete", "other users' open files could not be read")
        yield f"cannot tell for sure what uses the GPUs: {why}"
    gpus = (data.gpus if (data := evidence[Gpus].data) else None) or ()
    if nvml and not gpus:
        yield f"cannot tell what uses the GPUs: NVML: {evidence[Gpus].why or 'it lists no GPU'}"
    checked_gpus = [gpu for gpu in gpus if not uuids or gpu.uuid in uuids]
    for uuid in sorted(set(uuids) - {gpu.uuid for gpu in gpus if gpu.uuid}):
        yield f"NVML does not list {uuid}"
    for gpu in checked_gpus:
        if gpu.processes is None and nvml:
            yield f"what uses GPU {gpu.index} cannot be read: NVML: {gpu.why('processes')}"
    for process in section.data.processes:
        if is_keeper(process) or service_of(process) in services or process.pid in harmless:
            continue
        if gpus_text := _gpus_in_use(process, checked_gpus, any_gpu=not uuids):
            use = f"{gpus_text} in use by {process.command or 'a process'} (pid {process.pid})"
            yield f"{use}{_advice(process, gpus)}"
    pids = {process.pid for process in section.data.processes}
    for gpu in checked_gpus:
        for user in gpu.processes or ():
            if user.pid not in pids:
                yield f"GPU {gpu.index} in use by pid {user.pid}, which /proc does not show"


def _advice(process: Process, gpus: Sequence[Gpu]) -> str:
    """What to do about a monitoring client."""
    if service := monitor(process, gpus):
        return f", which the plan does not stop: plan again, or stop {service}"
    if process.command in MONITORS:
        return ": stop it, or name it with --holders if it does no harm"
    return ""


def is_keeper(process: Process) -> bool:
    return (process.command, process.unit) == KEEPER


def _gpus_in_use(process: Process, gpus: Sequence[Gpu], *, any_gpu: bool) -> str:
    """The GPUs that a process uses; empty if it uses none of these."""
    indices = [
        gpu.index
        for gpu in gpus
        if (gpu.minor_number is not None and gpu.minor_number in (process.gpu_minors or ()))
        or any(user.pid == process.pid for user in gpu.processes or ())
    ]
    if indices:
        return "GPU " + ",".join(map(str, indices))
    unplaced = process.gpu_minors is None or any(gpu.minor_number is None for gpu in gpus)
    return "a GPU" if any_gpu or unplaced else ""
