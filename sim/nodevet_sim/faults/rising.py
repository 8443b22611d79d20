"""Continuing faults: counters that rise during the look, from 0 at boot. On a node that is booted
two looks read different values. A function's docstring is the fault's documentation."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import Content, PerSecond
from nodevet_sim.faults.change import file_values, gpu_values, link_values
from nodevet_sim.faults.network import OneInterface, OneRdmaPort, interface_of, port_of
from nodevet_sim.faults.params import FaultParams, OneGpu
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.pci_files import aer_text

Pace = Annotated[int, Field(ge=1, le=100_000)]


class GpuPace(OneGpu):
    per_second: Pace = 100


class PortPace(OneRdmaPort):
    per_second: Pace = 100


class InterfacePace(OneInterface):
    per_second: Pace = 100


class Flaps(OneInterface):
    per_second: Pace = 2


def aer_errors_rising(healthy: Healthy, want: GpuPace) -> Patch:
    """A GPU's link has corrected errors (RxErr) all the time, by its AER counters.

    `gpu`; `per_second`, how many, 100. Only a baseline that limits their pace detects it.
    """
    gpu = healthy.gpu(want.gpu)
    path = f"{healthy.place(gpu)}/aer_dev_correctable"
    if path not in healthy.files:
        raise FaultError(f"GPU {gpu} has no aer_dev_correctable")
    return Patch({path: PerSecond(aer_text("correctable", {"RxErr": want.per_second}))}, gpu=gpu)


def pcie_replays_rising(healthy: Healthy, want: GpuPace) -> Patch:
    """A GPU retransmits packets on its PCIe link all the time.

    `gpu`; `per_second`, how many, 100. Only a baseline that limits their pace detects it.
    """
    return gpu_values(healthy, want.gpu, pcie_replay_counter=f"{want.per_second}/s")


def nvlink_errors_rising(healthy: Healthy, want: GpuPace) -> Patch:
    """An NVLink of a GPU has CRC errors all the time.

    `gpu`; `per_second`, how many, 100. Only a baseline that limits their pace detects it.
    """
    return link_values(healthy, want.gpu, crc_flit_errors=f"{want.per_second}/s")


def ib_errors_rising(healthy: Healthy, want: PortPace) -> Patch:
    """An InfiniBand port has symbol errors all the time; its link does not go down.

    `device`, the number of mlx5_<N>: 3; `per_second`, how many, 100. Only a baseline that limits
    their pace detects it.
    """
    port, _ = port_of(healthy, want.device)
    return _rising(healthy, f"{port}/counters", ("symbol_error",), want.per_second)


def interface_errors_rising(healthy: Healthy, want: InterfacePace) -> Patch:
    """An interface of a NIC receives broken frames (CRC) all the time.

    `interface`, that of the first NIC on the bus; `per_second`, how many, 100. Only a baseline that
    limits their pace detects it.
    """
    place = interface_of(healthy, want.interface)
    names = ("rx_errors", "rx_crc_errors")
    return _rising(healthy, f"{place}/statistics", names, want.per_second)


def link_flapping_now(healthy: Healthy, want: Flaps) -> Patch:
    """The link of a NIC goes down and comes back all the time, and is up at each look.

    `interface`, that of the first NIC on the bus; `per_second`, how often it changes, 2. Only a
    look with a sample detects it, or a second one.
    """
    place = interface_of(healthy, want.interface)
    return _rising(healthy, place, ("carrier_changes",), want.per_second)


def _rising(healthy: Healthy, folder: str, names: tuple[str, ...], per_second: int) -> Patch:
    known = file_values(healthy, folder, dict.fromkeys(names, per_second)).files
    files: dict[str, Content] = {path: PerSecond(text) for path, text in known.items()}
    return Patch(files)


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "aer-errors-rising": (GpuPace, aer_errors_rising),
    "ib-errors-rising": (PortPace, ib_errors_rising),
    "interface-errors-rising": (InterfacePace, interface_errors_rising),
    "link-flapping-now": (Flaps, link_flapping_now),
    "nvlink-errors-rising": (GpuPace, nvlink_errors_rising),
    "pcie-replays-rising": (GpuPace, pcie_replays_rising),
}
