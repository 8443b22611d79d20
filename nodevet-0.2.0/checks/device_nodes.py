"""The driver's device nodes exist, and the users who need them may open them.

**Why it matters.** A CUDA program opens /dev/nvidiactl, /dev/nvidia-uvm and one /dev/nvidia<N> for
each GPU. Without them, or without the right to open them, it finds no GPU, while root's nvidia-smi
shows all of them. A container gets the nodes that exist when it starts.

**Read from** `/dev/nvidia*`: numbers, permissions, and access(2) for reading and writing as the
probe's user; from NVML, nvmlDeviceGetMinorNumber. For MIG instances,
/proc/driver/nvidia/capabilities names the nodes in /dev/nvidia-caps.

**Verdicts.** A missing node fails: the nodes in `paths` and one node for each GPU (`gpu_count`
reports the latter, too). A node fails if it is not a character device: a container runtime that
mounts a missing path creates a directory or a file there. A GPU's node fails if its minor number
differs from the number in its name. A node fails if the probe's user cannot open it; root can open
any node, so `mode` judges the permissions themselves. Every MIG instance has its own node, which
must exist, because a container gets the instance only then. The check `imex` judges IMEX channels.

**To fix it** `nvidia-modprobe -c 0 -u` makes the nodes now; nvidia-persistenced and the udev rules
of the driver's packages make them at each boot. The permissions come from the nvidia module's
parameters NVreg_DeviceFileMode, NVreg_DeviceFileUID and NVreg_DeviceFileGID.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import of_section, reads_of
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus, subject_of
from nodevet.evidence.modules import DeviceNode, Modules
from nodevet.model import Area, Check, CheckParams, Finding, Subject, fail, ok, unknown

NOT_A_DEVICE = "not a character device"
MAKE = (
    "`nvidia-modprobe -c 0 -u` makes it now; for every boot install nvidia-modprobe, enable "
    "nvidia-persistenced and keep the driver's udev rules"
)
REMAKE = (
    "stop the processes that use it, remove it and make it again with `nvidia-modprobe -c 0 -u`; "
    "find out what made it: a container that mounted it before the driver was loaded, or a script"
)
OPEN = (
    "set NVreg_DeviceFileMode, _UID and _GID of the nvidia module in /etc/modprobe.d (0666 is the "
    "driver's default), remove the node and make it again, or put the user into its group"
)

CAPS = "/dev/nvidia-caps/nvidia-cap"
MAKE_CAP = (
    "`nvidia-modprobe -f /proc/driver/nvidia/capabilities/.../access` with the instance's "
    "path makes it"
)

Path = Annotated[str, Meta(pattern=r"^/dev/nvidia[0-9A-Za-z_-]{1,40}$")]


class Params(CheckParams):
    """`device_nodes: {}` or `device_nodes: "0666"` or `device_nodes: {paths: [/dev/nvidiactl]}`"""

    bare: ClassVar[str] = "mode"

    mode: Annotated[str, Meta(pattern=r"^0[0-7]{3}$")] | None = None
    """The permissions of each node, in octal."""
    paths: tuple[Path, ...] = ("/dev/nvidiactl", "/dev/nvidia-uvm")
    """Nodes that must exist, besides one for each GPU."""


@of_section(Modules, "/dev")
def judge(modules: Modules, evidence: Evidence, params: Params) -> Iterator[Finding]:
    if modules.device_nodes is None:
        yield unknown(why=f"device_nodes: {modules.why('device_nodes')}")
        return
    nodes = {node.path: node for node in modules.device_nodes}
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        elif gpu.minor_number is None:
            yield unread(subject_of(gpu), gpu, "minor_number")
        else:
            path = f"/dev/nvidia{gpu.minor_number}"
            yield from judge_node(subject_of(gpu), path, nodes, params.mode, gpu.minor_number)
    for path in params.paths:
        yield from judge_node(Subject(kind="device", id=path), path, nodes, params.mode, None)
    yield from judge_instances(evidence, modules, nodes)


def judge_instances(
    evidence: Evidence, data: Modules, nodes: Mapping[str, DeviceNode]
) -> Iterator[Finding]:
    """The findings about the nodes of MIG instances; none without MIG."""
    gpus = evidence[Gpus].data
    if data.mig_capabilities is None:
        if any(gpu.mig_current for gpu in (gpus.gpus if gpus else None) or ()):
            yield unread(Subject(kind="mig", id="instances"), data, "mig_capabilities")
        return
    for capability in data.mig_capabilities:
        subject = Subject(kind="mig", id=capability.name)
        if capability.minor is None:
            yield unread(subject, capability, "minor")
        else:
            yield from judge_node(
                subject, f"{CAPS}{capability.minor}", nodes, None, capability.minor
            )


def judge_node(
    subject: Subject,
    path: str,
    nodes: Mapping[str, DeviceNode],
    mode: str | None,
    minor: int | None,
) -> Iterator[Finding]:
    """The findings about one node. `minor`: the number in its name."""
    node = nodes.get(path)
    if node is None:
        advice = MAKE_CAP if subject.kind == "mig" else MAKE
        cause = {"cause": "gpu_count"} if subject.kind == "gpu" else {}
        yield fail(subject, expected=path, actual="missing", advice=advice, **cause)
    elif node.errors.get("minor") == NOT_A_DEVICE:
        yield fail(subject, expected=path, actual=NOT_A_DEVICE, advice=REMAKE)
    else:
        yield from each_fact(judge_fields(subject, node, mode, minor))


def judge_fields(
    subject: Subject, node: DeviceNode, mode: str | None, minor: int | None
) -> Iterator[Finding]:
    """The findings about its number, its permissions and whether the probe's user can open it."""
    yield ok(subject, expected=node.path, actual=node.path)
    for field in ("minor", "mode", "openable"):
        if getattr(node, field) is None:
            yield unread(subject, node, field)
    if None not in (minor, node.minor) and node.minor != minor:
        expected, actual = f"{node.path}, minor {minor}", f"minor {node.minor}"
        yield fail(subject, expected=expected, actual=actual, advice=REMAKE)
    if None not in (mode, node.mode) and node.mode != mode:
        yield fail(subject, expected=mode, actual=node.mode, why=node.path, advice=OPEN)
    if node.openable is False:
        why = f"{node.path} has mode {node.mode}"
        yield fail(subject, expected="openable", actual="denied", why=why, advice=OPEN)


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "mig_current", "minor_number"),
        *reads_of("modules.device_nodes[]", "minor", "mode", "openable", "path"),
        *reads_of("modules.mig_capabilities[]", "minor", "name"),
    ),
    judge=judge,
)
