"""The driver's device nodes are there, and whoever is to compute may open them.

**Why it matters.** A CUDA program opens /dev/nvidiactl, /dev/nvidia-uvm and one /dev/nvidia<N> for
each GPU. Without them, or without the right to open them, it finds no GPU, while root's nvidia-smi
shows all of them. Containers get what is there when they start.

**Read from** `/dev/nvidia*`: numbers, permissions, and access(2) for read and write as the user
that the probe runs as; of NVML nvmlDeviceGetMinorNumber.

**Verdicts.** A node that is missing fails: those of `paths`, and the one of each GPU (of which
`gpu_count` tells too). So does one that is not a character device (a container runtime that mounts
a path that is not there makes a directory or a file of it), one of a GPU with another minor number
than its name says, and one that the user of the probe cannot open. root can open any node:
`mode` judges the permissions themselves.

**To fix it** `nvidia-modprobe -c 0 -u` makes the nodes now; nvidia-persistenced and udev's rules of
the driver's packages at each boot. Permissions come from the nvidia module's parameters
NVreg_DeviceFileMode, NVreg_DeviceFileUID and NVreg_DeviceFileGID.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import subject_of
from nodevet.evidence.modules import DeviceNode, Modules
from nodevet.model import Area, Check, CheckParams, Finding, Subject, fail, ok, unknown

NOT_A_DEVICE = "not a character device"
MAKE = (
    "`nvidia-modprobe -c 0 -u` makes it now; for every boot install nvidia-modprobe, enable "
    "nvidia-persistenced and keep the driver's udev rules"
)
REMAKE = (
    "stop what uses it, remove it and make it again with `nvidia-modprobe -c 0 -u`; look for what "
    "made it: a container that mounted it before the driver was loaded, or a script"
)
OPEN = (
    "set NVreg_DeviceFileMode, _UID and _GID of the nvidia module in /etc/modprobe.d (0666 is the "
    "driver's default), remove the node and make it again, or put the user into its group"
)

Path = Annotated[str, Meta(pattern=r"^/dev/nvidia[0-9A-Za-z_-]{1,40}$")]


class Params(CheckParams):
    """`device_nodes: {}` or `device_nodes: "0666"` or `device_nodes: {paths: [/dev/nvidiactl]}`"""

    bare: ClassVar[str] = "mode"

    mode: Annotated[str, Meta(pattern=r"^0[0-7]{3}$")] | None = None
    """Permissions of each of them, in octal."""
    paths: tuple[Path, ...] = ("/dev/nvidiactl", "/dev/nvidia-uvm")
    """Which there must be, besides one for each GPU."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Modules]
    if section.data is None:
        yield unknown(why=f"/dev: {section.why}")
        return
    if section.data.device_nodes is None:
        yield unknown(why=f"device_nodes: {section.data.why('device_nodes')}")
        return
    nodes = {node.path: node for node in section.data.device_nodes}
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        elif gpu.minor_number is None:
            yield unread(subject_of(gpu), gpu, "minor_number")
        else:
            path = f"/dev/nvidia{gpu.minor_number}"
            yield judge_node(subject_of(gpu), path, nodes, params.mode, gpu.minor_number)
    for path in params.paths:
        yield judge_node(Subject(kind="device", id=path), path, nodes, params.mode, None)


def judge_node(
    subject: Subject,
    path: str,
    nodes: Mapping[str, DeviceNode],
    mode: str | None,
    minor: int | None,
) -> Finding:
    """One node; `minor`: the number that its name gives it."""
    node = nodes.get(path)
    if node is None:
        cause = {"cause": "gpu_count"} if minor is not None else {}
        return fail(subject, expected=path, actual="missing", advice=MAKE, **cause)
    if node.errors.get("minor") == NOT_A_DEVICE:
        return fail(subject, expected=path, actual=NOT_A_DEVICE, advice=REMAKE)
    for field in ("minor", "mode", "openable"):
        if getattr(node, field) is None:
            return unread(subject, node, field)
    if minor is not None and node.minor != minor:
        expected, actual = f"{path}, minor {minor}", f"minor {node.minor}"
        return fail(subject, expected=expected, actual=actual, advice=REMAKE)
    if mode is not None and node.mode != mode:
        return fail(subject, expected=mode, actual=node.mode, why=path, advice=OPEN)
    if not node.openable:
        why = f"{path} has mode {node.mode}"
        return fail(subject, expected="openable", actual="denied", why=why, advice=OPEN)
    return ok(subject, expected=path, actual=path)


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        "gpu.gpus[].minor_number",
        "modules.device_nodes[].minor",
        "modules.device_nodes[].mode",
        "modules.device_nodes[].openable",
        "modules.device_nodes[].path",
    ),
    judge=judge,
)
