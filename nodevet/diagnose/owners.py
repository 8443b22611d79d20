"""The owner of a process on a GPU: its user, with the job, the pod, the container or the unit.
Pure."""

import re

from nodevet.diagnose.model import JobOwner
from nodevet.evidence.document import Evidence
from nodevet.evidence.process_activity import ProcessActivities, ProcessActivity
from nodevet.evidence.processes import Process, Processes

CONTAINER = re.compile(r"[0-9a-f]{64}")
SHORT = 12  # characters of a container's id, as docker ps and crictl ps show it


def owner_of(evidence: Evidence, pid: int) -> JobOwner:
    """The owner of a process. In a container or a pod, the node's name of a uid may be another
    person's."""
    watched, listed = _watched(evidence, pid), _listed(evidence, pid)
    cgroup = (listed.cgroup if listed else None) or watched.cgroup or ""
    container = (CONTAINER.findall(cgroup) or [""])[-1][:SHORT]
    unit = (listed.unit if listed else None) or ""
    is_pod = (watched.job_id or "").startswith("pod ")
    return JobOwner(
        uid=listed.uid if watched.uid is None and listed else watched.uid,
        login="" if is_pod or is_contained(cgroup) else watched.login or "",
        job=watched.job_id or "",
        step=watched.step or "",
        partition=watched.partition or "",
        pod=watched.pod or "",
        container=container,
        unit="" if watched.job_id or container else unit,
    )


def _watched(evidence: Evidence, pid: int) -> ProcessActivity:
    """An empty record of a process that was not watched."""
    data = evidence[ProcessActivities].data
    processes = (data.processes if data else None) or ()
    return next((process for process in processes if process.pid == pid), ProcessActivity(pid=pid))


def _listed(evidence: Evidence, pid: int) -> Process | None:
    data = evidence[Processes].data
    processes = (data.processes if data else None) or ()
    return next((process for process in processes if process.pid == pid), None)


def is_contained(cgroup: str) -> bool:
    """Whether a process runs in a container or a pod, by its cgroup."""
    return "kubepods" in cgroup or CONTAINER.search(cgroup) is not None


def who_text(uid: int | None, login: str) -> str:
    """`alice (uid 1000)`, `user 1000`."""
    if uid is None:
        return login
    return f"{login} (uid {uid})" if login else f"user {uid}"


def owner_text(owner: JobOwner) -> str:
    """`alice (uid 1000), Slurm job 12, step 0, partition gpu`; empty if nothing is known."""
    job = owner.job.replace("Slurm ", "Slurm job ", 1)
    parts = (
        who_text(owner.uid, owner.login),
        f"pod {owner.pod}" if owner.pod else job,
        f"step {owner.step}" if owner.step else "",
        f"partition {owner.partition}" if owner.partition else "",
        f"container {owner.container}" if owner.container else "",
        f"unit {owner.unit}" if owner.unit else "",
    )
    return ", ".join(filter(None, parts))
