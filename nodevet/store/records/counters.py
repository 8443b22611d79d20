"""The counters that the store keeps when they change: errors of parts, which are rare. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from nodevet.base import typed
from nodevet.evidence.core import SectionRecord
from nodevet.evidence.document import Evidence
from nodevet.evidence.drives import Drives
from nodevet.evidence.edac import Edac
from nodevet.evidence.gpu import EccCounts, Gpus
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.mlxlink import Mlxlink
from nodevet.evidence.network import Network
from nodevet.evidence.nvme import Nvme
from nodevet.evidence.pci import Pci
from nodevet.store.records.parts import drive_id, gpu_id, nvme_id, rdma_id

Key = tuple[str, str, str]  # part, name, subject
Counted = tuple[str, str, str, int | None]  # and the value

OF_A_PORT = frozenset(
    {
        *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"),
        *(
            "port_rcv_remote_physical_errors",
            "port_xmit_discards",
            "excessive_buffer_overrun_errors",
        ),
        *("local_link_integrity_errors", "port_rcv_switch_relay_errors", "VL15_dropped"),
    }
)
OF_AN_INTERFACE = frozenset(
    {"rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"}
    | {"carrier_down_count"}
)
"""Counters of faults. Drops and retransmissions are left out: every busy network has them."""
ECC = tuple(name for name in EccCounts.__struct_fields__ if name.endswith("corrected"))


def _gpu(data: Gpus) -> Iterator[Counted]:
    for gpu in data.gpus or ():
        part = gpu_id(gpu)
        subject = "" if part else gpu.bus_id or f"GPU {gpu.index}"
        for name in ECC:
            yield part, f"gpu.ecc_{name}", subject, getattr(gpu.ecc, name)
        yield part, "gpu.remapped_corrected", subject, gpu.remapping.corrected
        yield part, "gpu.remapped_uncorrected", subject, gpu.remapping.uncorrected
        yield part, "gpu.retired_single_bit", subject, gpu.retired_pages.single_bit
        yield part, "gpu.retired_double_bit", subject, gpu.retired_pages.double_bit
        yield part, "gpu.pcie_replay_counter", subject, gpu.pcie_replay_counter
        for link in gpu.nvlinks or ():
            link_subject = f"{subject} link {link.link}".strip()
            yield part, "gpu.nvlink_replay_errors", link_subject, link.replay_errors
            yield part, "gpu.nvlink_recovery_errors", link_subject, link.recovery_errors
            yield part, "gpu.nvlink_crc_flit_errors", link_subject, link.crc_flit_errors
            yield part, "gpu.nvlink_crc_data_errors", link_subject, link.crc_data_errors


def _pci(data: Pci) -> Iterator[Counted]:
    for function in data.functions or ():
        yield "", "pci.aer_correctable", function.address, function.aer.correctable
        yield "", "pci.aer_nonfatal", function.address, function.aer.nonfatal
        yield "", "pci.aer_fatal", function.address, function.aer.fatal


def _nvme(data: Nvme) -> Iterator[Counted]:
    for controller in data.controllers or ():
        if controller.health:
            part = nvme_id(controller)
            subject = "" if part else controller.name
            yield part, "nvme.media_errors", subject, controller.health.media_errors
            yield part, "nvme.unsafe_shutdowns", subject, controller.health.unsafe_shutdowns
            yield part, "nvme.percentage_used", subject, controller.health.percentage_used


def _drives(data: Drives) -> Iterator[Counted]:
    for drive in data.drives or ():
        if drive.health:
            part = drive_id(drive)
            subject = "" if part else drive.name
            yield part, "drives.reallocated", subject, drive.health.reallocated
            yield part, "drives.pending", subject, drive.health.pending
            yield part, "drives.uncorrectable", subject, drive.health.uncorrectable


def _edac(data: Edac) -> Iterator[Counted]:
    for controller in data.controllers or ():
        if not controller.dimms:
            subject = f"mc{controller.id}"
            yield "", "edac.corrected", subject, controller.corrected
            yield "", "edac.uncorrected", subject, controller.uncorrected
        for dimm in controller.dimms or ():
            subject = dimm.label or f"mc{controller.id}/{dimm.id}"
            yield "", "edac.corrected", subject, dimm.corrected
            yield "", "edac.uncorrected", subject, dimm.uncorrected


def _infiniband(data: Infiniband) -> Iterator[Counted]:
    for device in data.devices or ():
        part = rdma_id(device)
        for port in device.ports or ():
            subject = f"port {port.number}" if part else f"{device.name} port {port.number}"
            for counter in port.counters or ():
                if counter.name in OF_A_PORT:
                    yield part, f"infiniband.{counter.name}", subject, counter.value


def _network(data: Network) -> Iterator[Counted]:
    for interface in data.interfaces or ():
        for counter in interface.counters or ():
            if counter.name in OF_AN_INTERFACE:
                yield "", f"network.{counter.name}", interface.name, counter.value


def _mlxlink(data: Mlxlink) -> Iterator[Counted]:
    for link in data.links or ():
        yield "", "mlxlink.link_downs", link.device, link.link_downs


_SOURCES: Mapping[type[SectionRecord], Callable[[Any], Iterator[Counted]]] = {
    Gpus: _gpu,
    Pci: _pci,
    Nvme: _nvme,
    Drives: _drives,
    Edac: _edac,
    Infiniband: _infiniband,
    Network: _network,
    Mlxlink: _mlxlink,
}
SECTIONS = tuple(record.__module__.rpartition(".")[2] for record in _SOURCES)
OFTEN = ("infiniband", "network")
"""Sections whose counters are among the readings, so they are compared every night."""


def counter_values(evidence: Evidence, sections: frozenset[str] | None = None) -> dict[Key, int]:
    """The counters of these sections, zeros too, without those that were not read."""
    counts: dict[Key, int] = {}
    for record, source in _SOURCES.items():
        if sections is not None and record.__module__.rpartition(".")[2] not in sections:
            continue
        data = evidence[record].data
        if data is not None:
            for part, name, subject, value in source(data):
                if value is not None:
                    counts[part, name, subject] = value
    return counts


def changed_counters(before: Mapping[Key, int], now: Mapping[Key, int]) -> dict[Key, int]:
    """The counters that changed. A counter that was never read before counts as 0."""
    return {key: value for key, value in now.items() if before.get(key, 0) != value}


class _Tally(msgspec.Struct, gc=False):
    """A counter with its value as the probe sent it."""

    name: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Tallying(msgspec.Struct):
    """The counters of a device, of a port, or of an interface."""

    ports: "list[_Tallying] | None" = None
    counters: list[_Tally] | None = None


class _TallySection(msgspec.Struct):
    devices: list[_Tallying] | None = None
    interfaces: list[_Tallying] | None = None


_TALLY = typed.decoder(_TallySection)


def counters_text(sent: Mapping[str, msgspec.Raw]) -> bytes:
    """The counters of the OFTEN sections as one text, which differs if one of them changed while
    the rest of the sections is the same."""
    text: list[bytes | msgspec.Raw] = []
    for name in OFTEN:
        data = sent.get(name, b"")
        try:
            section = _TALLY.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            text.append(data)
            continue
        names = OF_A_PORT if name == "infiniband" else OF_AN_INTERFACE
        ports = [port for device in section.devices or () for port in device.ports or ()]
        for holder in (*ports, *(section.interfaces or ())):
            text += [counter.value for counter in holder.counters or () if counter.name in names]
        text.append(name.encode())
    return b" ".join(text)
