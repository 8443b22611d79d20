"""Which job a process belongs to, by its cgroup and by a few variables of its environment.

Slurm: .../slurmstepd.scope/job_12/step_0/..., /slurm/uid_0/job_12/...; Kubernetes:
kubepods...-podUID.slice, /kubepods/burstable/podUID/.... Only VARIABLES leave the node.
"""

import re

from nodevet.remote.probe.files import read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

ENVIRON = 1 << 18  # bytes
VARIABLES = ("SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT", "RANK")
SLURM_CGROUP = re.compile("slurm.*/job_([0-9]+)(?:/|$)")
POD_CGROUP = re.compile("kubepods.*pod([0-9a-f_-]{32,36})")
LONGEST = 256


def job_variables(root: str, folder: str) -> "dict[str, str]":
    """VARIABLES with which the process in this folder of /proc started. Raises OSError."""
    rows = read_bytes(root, folder + "environ", ENVIRON).decode("utf-8", "replace").split("\0")
    pairs = (row.split("=", 1) for row in rows if "=" in row)
    return {name: value[:LONGEST] for name, value in pairs if name in VARIABLES}


def job_id(cgroup: str, variables: "Mapping[str, str]") -> "str | None":
    """`Slurm 12`, `pod 6f1d...`; None if the process belongs to no job."""
    in_slurm = SLURM_CGROUP.search(cgroup)
    number = in_slurm.group(1) if in_slurm else variables.get("SLURM_JOB_ID")
    if number:
        return "Slurm " + number
    pod = POD_CGROUP.search(cgroup)
    return "pod " + pod.group(1).replace("_", "-") if pod else None


def master(variables: "Mapping[str, str]") -> "str | None":
    """`10.0.0.1:29500`, where the ranks of a job meet; None if it is not set."""
    address, port = variables.get("MASTER_ADDR"), variables.get("MASTER_PORT", "")
    return "{}:{}".format(address, port) if address else None
