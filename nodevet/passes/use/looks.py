"""What a pass says of a node, from the evidence that passed. Pure."""

import hashlib
import math

from nodevet import __version__
from nodevet.evidence.document import Evidence, EvidenceError, open_evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.modules import Modules
from nodevet.fleet import Visit
from nodevet.passes.document import NONE, PassError

Facts = dict[str, list[str]]
DRIVER = "nvidia"


def facts_of(visit: Visit) -> Facts:
    """The lines of a pass that come from a visit. Raises PassError with the value that was not
    read."""
    data = visit.evidence or b""
    try:
        evidence = open_evidence(data)
    except EvidenceError as error:
        raise PassError(str(error)) from error
    driver = _driver(evidence)
    return {
        **_identity(evidence),
        "driver": [driver],
        "gpu": [] if driver == NONE else _uuids(evidence),
        "evidence": [hashlib.sha256(data).hexdigest()],
        "vetted": [str(math.floor(visit.at or 0.0))],
        "nodevet": [__version__],
    }


def _identity(evidence: Evidence) -> Facts:
    host = evidence[HostInfo].data
    if host is None or not host.machine_id or not host.boot_id or host.uptime_s is None:
        raise PassError("its machine id, boot id or uptime was not read")
    return {
        "machine": [host.machine_id],
        "boot": [host.boot_id],
        "uptime": [str(math.floor(host.uptime_s))],
    }


def _driver(evidence: Evidence) -> str:
    modules = evidence[Modules].data
    if modules is None or modules.loaded is None:
        raise PassError("its kernel modules were not read")
    if DRIVER not in {*modules.loaded, *(modules.builtin or ())}:
        return NONE
    if not modules.nvidia_version:
        raise PassError("the version of its NVIDIA driver was not read")
    return modules.nvidia_version


def _uuids(evidence: Evidence) -> list[str]:
    section = evidence[Gpus]
    gpus = section.data.gpus if section.data else None
    if gpus is None:
        raise PassError(f"its GPUs were not read: {section.why}")
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
    if len(uuids) < len(gpus):
        raise PassError("the UUID of a GPU was not read")
    return sorted(uuids)
