"""End the processes that a job left on a GPU.

**Now** nodevet sends SIGTERM to each process that the plan names, waits up to 10 s, and then sends
SIGKILL. Pid, start time and user identify a process. nodevet opens a pidfd before it compares them,
so that no signal reaches a newer process with the same pid. The check must then find the
GPUs free.

**At every boot** nothing: no process survives a reboot.

**Risk** idle: nothing else may use these GPUs.

**Rollback** cannot undo it: an ended process does not start again. `nodevet approve` says so, and
the report of a rollback names each process. `approvals: {one_way: 2}` in approval.yaml sets how
many people must approve it.

**What it cannot do.** It ends nothing while Slurm reports a running or completing job on the node,
or if the node has slurmd and Slurm does not answer. It ends no process of a Kubernetes pod, of a
container, of a system user or of a systemd service: end the pod, the container or the service. If
the check cannot tell whether a process on a GPU may run, or if memory leaked, nodevet ends no
process of that GPU. It does not free memory that no process holds. Even SIGKILL does not end a
process that waits for the driver: then reboot. The node needs Linux 5.3 or later.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from nodevet.base.uuids import GPU_UUID
from nodevet.checks.leftover_processes import JOB, Params, is_allowed
from nodevet.evidence.across import each_gpu
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.evidence.processes import Process, Processes, given_cgroup
from nodevet.evidence.slurm import Slurm
from nodevet.fixing.gpus import common_value
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.fixing.units import unit_of
from nodevet.model import Finding, Value
from nodevet.resource.running_process import EndProcess

SLURMD, SELF = "slurmd.service", "self"
OF_SLURM = re.compile(r"/job_([0-9]{1,9})(?:/|\Z)")
SESSIONS = re.compile(
    r"session-[^/]+\.scope|user@[0-9]+\.service|sshd?(@[^/]*)?\.service|slurmd\.service"
)
"""Units in which processes of users run."""
CONTAINER = re.compile(r"/(docker|libpod|crio|cri-|nerdctl|lxc|machine\.slice|buildkit)")
"""Control groups of containers, which also lie in sessions."""
FIRST_USER = 1000


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that ends all processes that were left over; see `FIX`."""
    if why := job_reason(evidence):
        raise FixError(why)
    ends: dict[int, EndProcess] = {}
    gpus: dict[str, tuple[str, Value]] = {}  # label -> UUID, what is left there
    refused = []
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            continue
        label = subject_of(gpu).label
        own = [finding for finding in failed if finding.subject.label == label]
        if not own:
            continue
        try:
            actions = ends_of(gpu, own, evidence, params)
        except FixError as error:
            refused.append(f"{label}: {error}")
            continue
        ends.update((action.pid, action) for action in actions)
        gpus[label] = (gpu.uuid or "", own[0].actual)
    if not gpus:
        raise FixError("; ".join(refused) or "the findings do not come from this evidence")
    all_ends = tuple(ends[pid] for pid in sorted(ends))
    change = PlannedChange(
        expected=[],
        actual=common_value({label: actual for label, (_, actual) in gpus.items()}),
        subjects=tuple(gpus),
        actions=all_ends,
        resources=tuple(action.resource for action in all_ends),
        risk=Risk.IDLE,
        gpus=tuple(uuid for uuid, _ in gpus.values()),
    )
    yield from with_refusals([change], refused)


def ends_of(
    gpu: Gpu, failures: Sequence[Finding], evidence: Evidence, params: Params
) -> list[EndProcess]:
    """The actions that end the processes of a GPU. Raises FixError if one of them may not end, or
    if that would not make the GPU free."""
    if any(finding.expected != [] for finding in failures):
        raise FixError("memory leaked: drain the node and reset the GPU")
    if not GPU_UUID.fullmatch(gpu.uuid or ""):
        raise FixError(f"uuid: {gpu.why('uuid')}")
    data = evidence[Processes].data
    known = {process.pid: process for process in (data.processes if data else None) or ()}
    actions = []
    for user in gpu.processes or ():
        process = known.get(user.pid)
        allowed = is_allowed(process, params)
        if isinstance(allowed, str):
            raise FixError(f"pid {user.pid}: {allowed}")
        if not allowed and process is not None:
            actions.append(end(process, evidence))
    if not actions:
        raise FixError("the finding does not come from this evidence")
    return actions


def end(process: Process, evidence: Evidence) -> EndProcess:
    """The action that ends a process. Raises FixError."""
    for field in ("command", "uid", "started_s", "cgroup"):
        if getattr(process, field) is None:
            raise FixError(f"pid {process.pid}: {field}: {process.why(field)}")
    name = f"{process.command} (pid {process.pid})"
    uid, cgroup = process.uid or 0, given_cgroup(process)
    if uid < FIRST_USER:
        raise FixError(f"{name} belongs to system user {uid}: end it by hand")
    job = OF_SLURM.search(cgroup)
    if job and not slurm_state(evidence):
        raise FixError(f"{name} is in job {job[1]}, and Slurm does not say whether that runs")
    in_session = SESSIONS.fullmatch(process.unit or "") and not CONTAINER.search(
        process.cgroup or ""
    )
    if not job and (JOB.search(cgroup) or not in_session):
        raise FixError(f"{name} belongs to {process.unit or cgroup[:80]}: end that")
    return EndProcess(
        pid=process.pid,
        started_s=process.started_s or 0.0,
        uid=uid,
        name=process.command or "",
        job=int(job[1]) if job else None,
    )


def job_reason(evidence: Evidence) -> str:
    """Why a job may run on the node; empty if none does."""
    state = slurm_state(evidence)
    if not state:
        is_installed = unit_of(evidence, SLURMD).load_state != "not-found"
        return f"{SLURMD} exists, and Slurm does not say whether a job runs" if is_installed else ""
    base, *flags = state.split("+")
    if base != "IDLE" or "COMPLETING" in flags:
        return f"Slurm says {state[:60]}: a job may run here; wait for it, or drain the node"
    return ""


def slurm_state(evidence: Evidence) -> str:
    """What Slurm says of this node: IDLE+DRAIN; empty if it says nothing."""
    nodes = (data.nodes if (data := evidence[Slurm].data) else None) or ()
    return next((node.state or "" for node in nodes if node.name == SELF), "")


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """What says whether a job runs."""
    return {"services": (SLURMD,), "slurm": (SELF,)}


FIX = Fix(plan=plan, risk=Risk.IDLE, after=(), asks=asks)
"""First: other fixes need GPUs that nothing uses."""
