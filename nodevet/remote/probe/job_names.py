"""Which job a process belongs to, by its cgroup and by a few variables of its environment, and who
owns it.

Slurm: .../slurmstepd.scope/job_12/step_0/..., /slurm/uid_0/job_12/...; Kubernetes:
kubepods...-podUID.slice, /kubepods/burstable/podUID/...; kubelet names a pod's folder of logs
NAMESPACE_NAME_UID. Only VARIABLES leave the node.
"""

import re

from nodevet.remote.probe.files import names, read, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Mapping

ENVIRON = 1 << 18  # bytes
RANKS = (  # torchrun, Open MPI, PMI of MPICH and Slurm, srun; number, how many there are
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
OF_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_USER", "SLURM_JOB_PARTITION")
VARIABLES = OF_SLURM + ("MASTER_ADDR", "MASTER_PORT") + sum(RANKS, ())
NUMBER = re.compile("[0-9]{1,6}\\Z")
SLURM_CGROUP = re.compile("slurm.*/job_([0-9]+)(?:/step_([0-9a-z]+))?(?:/|$)")
BY_USER = re.compile(r"/user@[0-9]+\.service/.*")  # below it, a user creates any cgroup
LONGEST = 256  # characters of a value
POD_LOGS = "/var/log/pods"
POD_CGROUP = re.compile("kubepods.*pod([0-9a-f_-]{32,36})")


def job_variables(
    root: str, folder: str, wanted: "Iterable[str]" = VARIABLES, longest: int = LONGEST
) -> "dict[str, str]":
    """The wanted variables with which the process in this folder of /proc started. Raises
    OSError."""
    rows = read_bytes(root, folder + "environ", ENVIRON).decode("utf-8", "replace").split("\0")
    pairs = (row.split("=", 1) for row in rows if "=" in row)
    return {name: value[:longest] for name, value in pairs if name in wanted}


def job_id(cgroup: str, variables: "Mapping[str, str]") -> "str | None":
    """`Slurm 12`, `pod 6f1d...`; None if the process belongs to no job."""
    cgroup = BY_USER.sub("", cgroup)
    in_slurm = SLURM_CGROUP.search(cgroup)
    number = in_slurm.group(1) if in_slurm else variables.get("SLURM_JOB_ID")
    if number:
        return "Slurm " + number
    pod = POD_CGROUP.search(cgroup)
    return "pod " + pod.group(1).replace("_", "-") if pod else None


def step_id(cgroup: str, variables: "Mapping[str, str]") -> "str | None":
    """The step of Slurm that started the process: `0`, `batch`."""
    in_slurm = SLURM_CGROUP.search(BY_USER.sub("", cgroup))
    return in_slurm.group(2) if in_slurm else variables.get("SLURM_STEP_ID")


def login_of(root: str, uid: int, variables: "Mapping[str, str]") -> str:
    """The name of a user in passwd(5); of one that only a directory service knows, what Slurm
    called the owner of the job. Raises OSError, LookupError."""
    row = re.search("^([^:\n]+):[^:\n]*:{}:".format(uid), read(root, "/etc/passwd"), re.MULTILINE)
    name = row.group(1) if row else variables.get("SLURM_JOB_USER")
    if not name:
        raise LookupError("no name of {} in /etc/passwd".format(uid))
    return name


def pod_name(root: str, job: str) -> str:
    """`ml/train-0` of `pod 6f1d...`. Raises OSError, ValueError, LookupError."""
    uid = job[len("pod ") :]
    for name in names(root, POD_LOGS):
        namespace, _, rest = name.partition("_")
        pod, _, own = rest.rpartition("_")
        if own == uid:
            return "{}/{}".format(namespace, pod)
    raise LookupError("{} has no folder of {}".format(POD_LOGS, job))


def rank_of(variables: "Mapping[str, str]") -> "tuple[int | None, int | None]":
    """(rank, how many ranks the job has) by the first launcher that sets a rank; srun comes last,
    because it may have started another launcher. A number that cannot be right is None."""
    for name, total in RANKS:
        if name in variables:
            rank, ranks = (
                int(text) if NUMBER.match(text) else None
                for text in (variables[name], variables.get(total, ""))
            )
            return (rank if ranks is None or (rank or 0) < ranks else None), ranks
    return None, None


def master(variables: "Mapping[str, str]") -> "str | None":
    """`10.0.0.1:29500`, where the ranks of a job meet; None if it is not set."""
    address, port = variables.get("MASTER_ADDR"), variables.get("MASTER_PORT", "")
    return "{}:{}".format(address, port) if address else None
