"""The parts of a host with their slots, and the ids that follow them from host to host. Pure."""

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

Held = tuple[Part, str]  # a part and its slot


def nvme_id(controller: NvmeController) -> str:
    """Model and serial number; empty without the latter."""
    if not is_id(controller.serial):
        return ""
    return f"{controller.model or ''} {controller.serial}".strip()


def drive_id(drive: ScsiDrive) -> str:
    """Its serial number; empty for a volume of a RAID controller."""
    return "" if drive.volume or not is_id(drive.serial) else (drive.serial or "").strip()


def gpu_id(gpu: Gpu) -> str:
    """Its UUID; empty without one."""
    return (gpu.uuid or "") if is_id(gpu.uuid) else ""


def rdma_id(device: RdmaDevice) -> str:
    """Its GUID; empty without one, and for a virtual function."""
    return "" if device.physfn or not is_id(device.node_guid) else device.node_guid or ""


def _held_part(kind: PartKind, part: str, slot: str, model: str | None, *names: str | None) -> Held:
    return Part(kind=kind, id=part, model=model or "", names=tuple(filter(None, names))), slot


def _gpus(data: Gpus) -> Iterator[Held]:
    for gpu in data.gpus or ():
        names = filter(is_id, (gpu.serial, gpu.board_part_number, gpu.vbios_version))
        slot = gpu.bus_id or f"GPU {gpu.index}"
        yield _held_part(PartKind.GPU, gpu_id(gpu), slot, gpu.name, *names)


def _rdma(data: Infiniband) -> Iterator[Held]:
    for device in data.devices or ():
        slot, names = device.bus_id or device.name, (device.board_id, device.fw_ver)
        yield _held_part(PartKind.NIC, rdma_id(device), slot, device.hca_type, *names)


def _interfaces(data: Network) -> Iterator[Held]:
    """Physical interfaces by MAC address, without those of a bond, which share one."""
    physical = [i for i in data.interfaces or () if i.kind == "physical" and i.type == 1]
    uses = Counter(interface.address for interface in physical)
    for interface in physical:
        address = interface.address or ""
        if uses[address] == 1 and is_id(address):
            yield _held_part(
                PartKind.NIC, address, interface.bus_id or interface.name, interface.driver
            )


def _nvme(data: Nvme) -> Iterator[Held]:
    for controller in data.controllers or ():
        slot, names = (
            controller.address or controller.name,
            (controller.serial, controller.firmware),
        )
        yield _held_part(PartKind.NVME, nvme_id(controller), slot, controller.model, *names)


def _drives(data: Drives) -> Iterator[Held]:
    for drive in data.drives or ():
        names = (drive.vendor, drive.firmware)
        yield _held_part(PartKind.DRIVE, drive_id(drive), drive.name, drive.model, *names)


_SOURCES: Mapping[type[SectionRecord], tuple[PartKind, str, Callable[[Any], Iterator[Held]]]] = {
    Gpus: (PartKind.GPU, "gpus", _gpus),
    Infiniband: (PartKind.NIC, "devices", _rdma),
    Network: (PartKind.NIC, "interfaces", _interfaces),
    Nvme: (PartKind.NVME, "controllers", _nvme),
    Drives: (PartKind.DRIVE, "drives", _drives),
}
"""By section: the kind of its parts, the field that lists them, and the function that yields
them."""
SECTIONS = tuple(record.__module__.rpartition(".")[2] for record in _SOURCES)


def held_parts(
    evidence: Evidence, sections: frozenset[str]
) -> tuple[list[Held], frozenset[PartKind]]:
    """The parts in these sections, each once, and the kinds that were read completely.

    If a kind could not be read, no part of it counts as gone.
    """
    parts: dict[tuple[PartKind, str], Held] = {}
    kinds: set[PartKind] = set()
    missing: set[PartKind] = set()
    for (record, (kind, field, source)), name in zip(_SOURCES.items(), SECTIONS, strict=True):
        kinds.add(kind)
        data = evidence[record].data if name in sections else None
        if data is None or getattr(data, field) is None:
            missing.add(kind)
            continue
        for part, slot in source(data):
            if part.id:
                parts.setdefault((part.kind, part.id), (part, slot))
    return list(parts.values()), frozenset(kinds - missing)
