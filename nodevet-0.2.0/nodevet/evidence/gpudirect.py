"""Section gpudirect: GPUDirect Storage and GDRCopy."""

from nodevet.base.bounds import Text
from nodevet.evidence.core import SectionRecord


class GpuDirect(SectionRecord, frozen=True, kw_only=True):
    """/sys/module, /proc/driver/nvidia-fs, /etc/cufile.json, /dev/gdrdrv."""

    nvidia_fs: bool | None = None  # the module is loaded
    nvidia_fs_version: Text | None = None  # "" if it does not say
    nvidia_fs_stats: bool | None = None  # /proc/driver/nvidia-fs/stats is there
    # cuFile uses the kernel's own peer-to-peer DMA, without nvidia-fs: use_pci_p2pdma
    p2pdma: bool | None = None
    gdrdrv: bool | None = None  # the module is loaded
    gdrdrv_version: Text | None = None
    gdrdrv_device: Text | None = None  # permissions of /dev/gdrdrv, 0666; "" if it is not there
