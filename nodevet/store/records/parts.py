"""Which parts a host holds, and where they are: what is followed from host to host. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodevet.evidence.core import SectionRecord
from nodevet.evidence.document import Evidence
from nodevet.evidence.drives import Drives, ScsiDrive
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.ids import is_id
from nodevet.evidence.infiniband import Infiniband, RdmaDevice
from nodevet.evidence.network import Network
from nodevet.evidence.nvme import Nvme, NvmeController
from nodevet.store.records.model import Part, PartKind

Held = tuple[Part, str]  # with its slot


def nvme_id(controller: NvmeController) -> str:
    """Model and serial number; empty without the latter."""
    if not is_id(controller.serial):
        return ""
    return f"{controller.model or ''} {controller.serial}".strip()


def drive_id(drive: ScsiDrive) -> str:
    """Its serial number; empty of a RAID controller's volume."""
    return "" if drive.volume or not is_id(drive.serial) else (drive.serial or "").strip()


def gpu_id(gpu: Gpu) -> str:
    """Its UUID; empty without one."""
    return (gpu.uuid or "") if is_id(gpu.uuid) else ""


def rdma_id(device: RdmaDevice) -> str:
    """Its GUID; empty without one, and of a virtual function."""
    return "" if device.physfn or not is_id(device.node_guid) else device.node_guid or ""


def _gpus(data: Gpus) -> Iterator[Held] | None:
    if data.gpus is None:
        return None
    return (
        (
            Part(
                kind=PartKind.GPU,
                id=gpu_id(gpu),
                model=gpu.name or "",
                names=tuple(
                    each
                    for each in (gpu.serial, gpu.board_part_number, gpu.vbios_version)
                    if each and is_id(each)
                ),
            ),
            gpu.bus_id or f"GPU {gpu.index}",
        )
        for gpu in data.gpus
        if gpu_id(gpu)
    )


def _rdma(data: Infiniband) -> Iterator[Held] | None:
    if data.devices is None:
        return None
    return (
        (
            Part(
                kind=PartKind.NIC,
                id=rdma_id(device),
                model=device.hca_type or "",
                names=tuple(each for each in (device.board_id, device.fw_ver) if each),
            ),
            device.bus_id or device.name,
        )
        for device in data.devices
        if rdma_id(device)
    )


def _interfaces(data: Network) -> Iterator[Held] | None:
    """Physical ones by their MAC address; those of a bond all have the same, and are not told."""
    if data.interfaces is None:
        return None
    physical = [each for each in data.interfaces if each.kind == "physical" and each.type == 1]
    uses = Counter(each.address for each in physical)
    return (
        (
            Part(kind=PartKind.NIC, id=each.address, model=each.driver or ""),
            each.bus_id or each.name,
        )
        for each in physical
        if each.address and uses[each.address] == 1 and is_id(each.address)
    )


def _nvme(data: Nvme) -> Iterator[Held] | None:
    if data.controllers is None:
        return None
    return (
        (
            Part(
                kind=PartKind.NVME,
                id=nvme_id(each),
                model=each.model or "",
                names=tuple(name for name in (each.serial, each.firmware) if name),
            ),
            each.address or each.name,
        )
        for each in data.controllers
        if nvme_id(each)
    )


def _drives(data: Drives) -> Iterator[Held] | None:
    if data.drives is None:
        return None
    return (
        (
            Part(
                kind=PartKind.DRIVE,
                id=drive_id(each),
                model=each.model or "",
                names=tuple(name for name in (each.vendor, each.firmware) if name),
            ),
            each.name,
        )
        for each in data.drives
        if drive_id(each)
    )


_SOURCES: Mapping[type[SectionRecord], Callable[[Any], Iterator[Held] | None]] = {
    Gpus: _gpus,
    Infiniband: _rdma,
    Network: _interfaces,
    Nvme: _nvme,
    Drives: _drives,
}
SECTIONS = tuple(record.__module__.rpartition(".")[2] for record in _SOURCES)


def held(evidence: Evidence, sections: frozenset[str]) -> tuple[list[Held], frozenset[PartKind]]:
    """The parts that these sections tell of, each once; and the kinds of which they tell all.

    Of a kind that could not be read nothing is known: no part of it has left.
    """
    found: dict[tuple[PartKind, str], Held] = {}
    told: set[PartKind] = set()
    unread: set[PartKind] = set()
    for record, source in _SOURCES.items():
        kind = KINDS[record]
        section = evidence[record] if record.__module__.rpartition(".")[2] in sections else None
        listed = source(section.data) if section and section.data else None
        if listed is None:
            unread.add(kind)
            continue
        told.add(kind)
        for part, slot in listed:
            found.setdefault((part.kind, part.id), (part, slot))
    return list(found.values()), frozenset(told - unread)


KINDS: Mapping[type[SectionRecord], PartKind] = {
    Gpus: PartKind.GPU,
    Infiniband: PartKind.NIC,
    Network: PartKind.NIC,
    Nvme: PartKind.NVME,
    Drives: PartKind.DRIVE,
}
