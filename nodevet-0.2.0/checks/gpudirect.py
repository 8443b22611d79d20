"""GPUDirect RDMA has what it needs: nvidia_peermem, or dma-buf with the open kernel module.

**Why it matters.** Without it every transfer between a NIC and a GPU goes through the host's
memory. NCCL falls back to this path and reports it only with NCCL_DEBUG=INFO, and jobs on several
nodes run at half rate.

**Read from** `/proc/modules`, the flavour of the driver in `/proc/driver/nvidia/version`, the
kernel release, the RDMA devices of `/sys/class/infiniband`, and the PCI bus.

**Verdicts.** One of the two is enough: `peermem` (nvidia_peermem, or the nv_peer_mem or
efa_nv_peermem before it, is loaded) or `dma_buf` (the driver is the open flavour, and the kernel is
5.12 or newer). `one_of` excludes one of them. An older kernel with the open flavour and without
peermem is unknown, because some distributions brought dma-buf for RDMA to older kernels. A node
without RDMA devices on its PCI bus is not applicable: software devices (rxe, siw) do not count. If
the bus has InfiniBand adapters and the kernel has no RDMA device, the result is unknown: the driver
is not loaded, or gave up.

**To fix it** `modprobe nvidia_peermem`, and for every boot a file in `/etc/modules-load.d`; with
the open flavour, current NCCL and UCX use dma-buf by themselves.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.checking.rdma import NOT_LOADED
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.modules import Modules
from nodevet.evidence.pci import KEPT_FOR_GUESTS, Pci
from nodevet.model import NODE, Area, Check, CheckParams, Finding, fail, not_applicable, ok, unknown

PEERMEM = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem")
DMA_BUF_KERNEL = (5, 12)  # ib_umem_dmabuf_get(), drivers/infiniband/core/umem_dmabuf.c
WORDS = {"peermem": "nvidia_peermem", "dma_buf": "dma-buf with the open kernel module"}
ADVICE = (
    "`modprobe nvidia_peermem` now, and nvidia_peermem in a file of /etc/modules-load.d for every "
    "boot; or install the open kernel modules, which dma-buf needs"
)
NONE = "the node has no RDMA device"
INFINIBAND = "0207"  # PCI class
Way = Literal["peermem", "dma_buf"]


class Params(CheckParams):
    """`gpudirect: {}` or `gpudirect: {one_of: [dma_buf]}`"""

    one_of: Annotated[tuple[Way, ...], Meta(min_length=1)] = ("peermem", "dma_buf")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    exemption = without_rdma(evidence)
    yield exemption if exemption is not None else judge_ways(evidence, params)


def without_rdma(evidence: Evidence) -> Finding | None:
    """The finding about a node without RDMA devices, or with unknown RDMA devices."""
    section = evidence[Infiniband]
    if section.status == "absent":
        return without_device(evidence)
    if section.data is None:
        return unknown(why=f"RDMA devices: {section.why}")
    if section.data.devices is None:
        return unread(NODE, section.data, "devices")
    places = [device.bus_id for device in section.data.devices]
    for device in section.data.devices:
        if device.bus_id is None and not any(places):
            return unknown(why=f"{device.name}: bus_id: {device.why('bus_id')}")
    return None if any(places) else without_device(evidence)


def without_device(evidence: Evidence) -> Finding:
    """The finding if the kernel has no RDMA device; the PCI bus may have an adapter."""
    bus = evidence[Pci]
    if bus.status != "absent" and (bus.data is None or bus.data.functions is None):
        return unknown(why=f"PCI: {bus.data.why('functions') if bus.data else bus.why}")
    adapters = [nic.address for nic in (bus.data.of_kind("nic") if bus.data else ())
                if (nic.class_code or "").startswith(INFINIBAND)
                and nic.driver not in KEPT_FOR_GUESTS]  # fmt: skip
    if adapters:
        why = f"the kernel has no RDMA device for the InfiniBand adapters {', '.join(adapters[:8])}"
        return unknown(why=why, advice=NOT_LOADED)
    return not_applicable(why=NONE)


def judge_ways(evidence: Evidence, params: Params) -> Finding:
    section = evidence[Modules]
    if section.data is None:
        return unknown(why=f"modules: {section.why}")
    expected = " or ".join(WORDS[way] for way in params.one_of)
    answers = {way: has_peermem(section.data) if way == "peermem" else
             has_dma_buf(section.data, evidence) for way in params.one_of}  # fmt: skip
    working = [actual for works, actual in answers.values() if works]
    if working:
        return ok(expected=expected, actual=" and ".join(working))
    unsure = [why for works, why in answers.values() if works is None]
    if unsure:
        return unknown(why="; ".join(unsure))
    return fail(
        expected=expected,
        actual=", ".join(actual for _, actual in answers.values()),
        advice=ADVICE,
    )


def has_peermem(modules: Modules) -> tuple[bool | None, str]:
    """Whether peermem is loaded, and the text for the finding; None if it is not known."""
    for field in ("loaded", "builtin"):
        names = getattr(modules, field)
        if names is None:
            return None, f"{field}: {modules.why(field)}"
        for name in PEERMEM:
            if name in names:
                return True, f"{name} is loaded"
    return False, "nvidia_peermem is not loaded"


def has_dma_buf(modules: Modules, evidence: Evidence) -> tuple[bool | None, str]:
    """Whether dma-buf works for the GPUs, and the text for the finding; None if it is not known."""
    if modules.nvidia_flavour is None:
        return None, f"nvidia_flavour: {modules.why('nvidia_flavour')}"
    if modules.nvidia_flavour != "open":
        return False, f"the kernel module is {modules.nvidia_flavour}"
    host = evidence[HostInfo].data
    release = host.kernel if host else None
    if host is None or release is None:
        return None, f"kernel: {host.why('kernel') if host else evidence[HostInfo].why}"
    number = re.match(r"([0-9]{1,3})\.([0-9]{1,3})", release)
    if number is None:
        return None, f"the kernel's release is {release}"
    if (int(number[1]), int(number[2])) < DMA_BUF_KERNEL:
        return None, f"kernel {release} may be too old for dma-buf, which came with 5.12"
    return True, "dma-buf with the open kernel module"


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        "host.kernel",
        "infiniband.devices[].bus_id",
        *reads_of("modules", "builtin[]", "loaded[]", "nvidia_flavour"),
        *reads_of("pci.functions[]", "class_code", "driver"),
    ),
    judge=judge,
    unasked="for HGX boards: elsewhere a site may do without GPUDirect",
)
