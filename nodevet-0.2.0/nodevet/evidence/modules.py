"""Section modules: the kernel's, and the driver's device nodes."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

DEVICE_NODES = at_most(1024)  # /dev/nvidia*


class DeviceNode(Record, frozen=True, kw_only=True):
    """A character device /dev/nvidia*, or of /dev/nvidia-caps."""

    path: Text
    major: int | None = None
    minor: int | None = None
    mode: Text | None = None  # octal permissions: 0666
    # access(2) for read and write as the probing user; of /dev/nvidia-caps for read
    openable: bool | None = None


class MigCapability(Record, frozen=True, kw_only=True):
    """A MIG instance, /proc/driver/nvidia/capabilities/gpu<N>/mig/gi<N>[/ci<N>]/access."""

    name: Text  # gpu0/gi1, gpu0/gi1/ci0
    minor: int | None = None  # of /dev/nvidia-caps/nvidia-cap<minor>


class Modules(SectionRecord, frozen=True, kw_only=True):
    """/proc/modules, /sys/module/nvidia/version, /proc/driver/nvidia/version, /dev/nvidia*."""

    unique = ("device_nodes[].path", "mig_capabilities[].name")

    loaded: Annotated[tuple[Text, ...], bounds.MODULES] | None = None
    # in /sys/module or modules.builtin, and not loaded
    builtin: Annotated[tuple[Text, ...], bounds.MODULES] | None = None
    on_demand: Annotated[tuple[Text, ...], bounds.MODULES] | None = (
        None  # see nodevet.remote.probe.demand
    )
    nvidia_version: Text | None = None  # /sys/module/nvidia/version
    nvidia_flavour: Text | None = None  # open or proprietary, from /proc/driver/nvidia/version
    # /sys/module/mlx5_core/version, of OFED or DOCA: 24.10-1.1.4; "" of the kernel's own driver
    mlx5_core_version: Text | None = None
    secure_boot: bool | None = None  # the EFI variable SecureBoot; False without UEFI
    device_nodes: Annotated[tuple[DeviceNode, ...], DEVICE_NODES] | None = None
    mig_capabilities: Annotated[tuple[MigCapability, ...], DEVICE_NODES] | None = None
