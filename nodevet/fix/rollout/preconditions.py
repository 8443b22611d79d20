"""What must hold before a step may write: the same node, and no use of it that that would hurt."""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.checking.identity import NO_NAME, is_same_name, own_gpus
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.processes import Process, Processes, service_of
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan.holders import MONITORS, monitor, needs_them_gone, spared
from nodevet.fixing.model import Risk
from nodevet.model import Baseline

TOLD = 300  # characters of what a hook said

KEEPER = ("nvidia-persiste", "nvidia-persistenced.service")
"""comm and unit of the one process that is no use of a GPU: it only keeps the driver loaded.
By unit too, since any program can take any name."""


def other_node(planned: PlannedNode, evidence: Evidence, *, booted: str | None = None) -> str:
    """Why this is not the node that was planned for, as it was then; empty if it is.

    `booted` is the boot id to expect where we rebooted the node ourselves.
    """
    host = evidence[HostInfo].data
    if host is None:
        return f"the node does not say who it is: {evidence[HostInfo].why}"
    if not host.machine_id or not host.boot_id:
        field = "boot_id" if host.machine_id else "machine_id"
        return f"the node does not say who it is: {field}: {host.why(field)}"
    if host.machine_id != planned.machine_id:
        return (
            f"another node under the same name: its machine id is {host.machine_id}, "
            f"the plan was made on {planned.machine_id}"
        )
    if host.boot_id != (booted or planned.boot_id):
        return "rebooted since the plan was made"
    return "" if host.boot_id == planned.boot_id else _clone(planned, evidence)


def _clone(planned: PlannedNode, evidence: Evidence) -> str:
    """Why a node of the machine id, in another boot, is a clone of the one that was planned for;
    empty if nothing says so. A boot id is of one machine alone, and a machine id is not: images
    are copied with it. What is not known, then or now, says nothing."""
    name, gpus = own_name(evidence), own_gpus(evidence)
    if name and planned.hostname and not is_same_name(planned.hostname, name, exact=False):
        return (
            f"another node with the same machine id: its host name is {brief(name)}, the plan "
            f"was made on {brief(planned.hostname)}; check DNS and HostName in ssh_config. If "
            "it was renamed since, set the earlier name with hostnamectl for as long as this takes"
        )
    if gpus and planned.gpus and not set(gpus) & set(planned.gpus):
        return (
            "another node with the same machine id: it has none of the GPUs that the plan was made "
            "on; check DNS and HostName in ssh_config. If all its GPUs were replaced since, this "
            "plan and its runs no longer apply here: look at it by hand"
        )
    return ""


def own_name(evidence: Evidence | None) -> str:
    """The node's own host name; empty if it has none that could tell it from another."""
    host = evidence[HostInfo].data if evidence else None
    name = (host.hostname if host else None) or ""
    return "" if name.lower() in NO_NAME else name


def other_baseline(plan: Plan, planned: PlannedNode, baseline: Baseline | None) -> str:
    """Why the baseline is no longer the one that was planned by; empty if it is."""
    name = planned.baseline
    if baseline is None:
        return f"the baseline {name} that the plan was made with is not found; name it with -b"
    if baseline.sha256 != plan.baselines.get(name):
        return f"the baseline {name} was changed since the plan was made"
    return ""


def occupied(
    step: Step,
    evidence: Evidence,
    services: Collection[str] = (),
    harmless: Collection[str] = (),
) -> str:
    """Why a step of its risk may not run beside what uses the GPUs now; empty if it may.

    `services` are those of the other steps: one that is about services does not mind them.
    `harmless` are those of --holders. Monitoring clients are in the way of a step that changes
    the GPUs and does not stop them itself.
    """
    if step.risk is Risk.LIVE:
        return ""
    about = {*step.holders, *((*step.services, *services) if step.services else ())}
    spare = spared(evidence, harmless, monitors=not needs_them_gone(step))
    nvml = step.risk is Risk.IDLE
    return "; ".join(users(evidence, step.gpus, nvml=nvml, services=about, spare=spare))


def services_of(steps: Iterable[Step]) -> frozenset[str]:
    return frozenset(name for step in steps for name in step.services)


def users(
    evidence: Evidence,
    uuids: Sequence[str],
    *,
    nvml: bool,
    services: Collection[str] = (),
    spare: Collection[int] = (),
) -> Iterator[str]:
    """Every use of these GPUs (none named: of any), and every reason why that cannot be told.

    `spare` are ids of processes that are none. `services` are those that the work is about: what
    they run is no other use.
    `nvml`: it must have said for each what computes on it. On a drained node, whose driver
    may be what is to be fixed, /proc alone tells.
    """
    section = evidence[Processes]
    if section.data is None or section.data.processes is None:
        why = section.data.why("processes") if section.data else section.why
        yield f"what uses the GPUs cannot be told: {why}"
        return
    if section.data.complete is not True:
        why = section.data.errors.get("complete", "other users' open files could not be read")
        yield f"what uses the GPUs cannot be told for sure: {why}"
    gpus = (data.gpus if (data := evidence[Gpus].data) else None) or ()
    if nvml and not gpus:
        yield f"what uses the GPUs cannot be told: NVML: {evidence[Gpus].why or 'it lists no GPU'}"
    touched = [gpu for gpu in gpus if not uuids or gpu.uuid in uuids]
    for uuid in sorted(set(uuids) - {gpu.uuid for gpu in gpus if gpu.uuid}):
        yield f"NVML does not list {uuid}"
    for gpu in touched:
        if gpu.processes is None and nvml:
            yield f"what uses GPU {gpu.index} cannot be told: NVML: {gpu.why('processes')}"
    for process in section.data.processes:
        if is_keeper(process) or service_of(process) in services or process.pid in spare:
            continue
        if held := _held(process, touched, everything=not uuids):
            told = f"{held} in use by {process.command or 'a process'} (pid {process.pid})"
            yield f"{told}{_way(process, gpus)}"
    known = {process.pid for process in section.data.processes}
    for gpu in touched:
        for user in gpu.processes or ():
            if user.pid not in known:
                yield f"GPU {gpu.index} in use by pid {user.pid}, which /proc does not show"


def _way(process: Process, gpus: Sequence[Gpu]) -> str:
    """What to do about a monitoring client."""
    if service := monitor(process, gpus):
        return f", which the plan does not stop: plan again, or stop {service}"
    if process.command in MONITORS:
        return ": stop it, or name it with --holders if it does no harm"
    return ""


def is_keeper(process: Process) -> bool:
    return (process.command, process.unit) == KEEPER


def _held(process: Process, gpus: Sequence[Gpu], *, everything: bool) -> str:
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
    return "a GPU" if everything or unplaced else ""


def drained(hook: str, host: str, *, seconds: float) -> str:
    """Run the site's drain hook with the host as its last argument, without a shell, for at most
    so many seconds.

    Why the node is not drained; empty if the hook ended with 0.
    """
    try:
        with tempfile.TemporaryFile() as output:
            code = _run([*shlex.split(hook), host], output, seconds)
            output.seek(max(0, output.seek(0, os.SEEK_END) - 4 * TOLD))
            said = output.read().decode("utf-8", "backslashreplace").strip()[-TOLD:]
    except subprocess.TimeoutExpired:
        return f"not drained: the drain hook was killed after {elapsed(seconds)} (--drain-timeout)"
    except (OSError, ValueError) as error:
        return f"the drain hook cannot be run: {error}"
    if code == 0:
        return ""
    return f"not drained: the drain hook ended with {code}{f': {said}' if said else ''}"


def _run(words: Sequence[str], output: IO[bytes], seconds: float) -> int:
    """The exit code. What it started ends with it where it takes too long."""
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a Ctrl-C is ours to take
    ) as process:
        try:
            return process.wait(seconds)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
