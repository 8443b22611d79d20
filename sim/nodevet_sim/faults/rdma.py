"""Faults of RDMA devices and the quality of their links. A function's docstring is the fault's
documentation."""

import posixpath
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import Content
from nodevet_sim.faults.network import (
    DEVICES,
    INTERFACES,
    OneRdmaPort,
    linked,
    port_of,
)
from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.network_files import LINKS, NO_GID, link_told

Rate = Annotated[float, Field(gt=0, lt=1)]


def rdma_interface_missing(healthy: Healthy, want: OneRdmaPort) -> Patch:
    """An RDMA device has no network interface, as when it was moved into a container and lost.

    `device`, the number of mlx5_<N>: 3. On InfiniBand only a baseline that names the interfaces
    detects it.
    """
    port, interface = port_of(healthy, want.device)
    folder = posixpath.dirname(interface.rstrip("/"))
    names = [name for name, path in linked(healthy, INTERFACES).items() if path == interface]
    if not names:
        raise FaultError("the device has no interface already")
    files: dict[str, Content] = {}
    if f"{port}/gid_attrs/ndevs/0" in healthy.files:  # of RoCE: each is of an address
        below = (path for path in healthy.files if path.startswith(f"{port}/gids/"))
        files = dict.fromkeys(below, f"{NO_GID}\n")
    removed = (folder, f"{INTERFACES}/{names[0]}", f"{port}/gid_attrs")
    return Patch(files, gone_paths=frozenset(removed))


def rdma_names_swapped(healthy: Healthy, want: NoParams) -> Patch:
    """The first two RDMA devices have each other's name, as after an update of udev's rules.

    On InfiniBand only a baseline that names the interfaces detects it.
    """
    devices = linked(healthy, DEVICES)
    names = sorted(name for name in devices if name.startswith("mlx5_"))[:2]
    if len(names) < 2:
        raise FaultError("the node has fewer than two Mellanox NICs")
    files: dict[str, Content] = {}
    links: dict[str, str] = {}
    for name, other in (names, reversed(names)):
        old, new = devices[name], f"{posixpath.dirname(devices[name])}/{other}"
        for path, content in healthy.files.items():
            if path.startswith(f"{old}/"):
                files[new + path[len(old) :]] = content
        for path, target in healthy.links.items():
            if path.startswith(f"{old}/"):
                links[new + path[len(old) :]] = target
        links[f"{DEVICES}/{other}"] = posixpath.relpath(new, DEVICES)
    return Patch(files, links=links, gone_paths=frozenset(devices[name] for name in names))


def gid_missing(healthy: Healthy, want: OneRdmaPort) -> Patch:
    """A RoCE port has no GID of RoCE v2, only those of RoCE v1.

    `device`, the number of mlx5_<N>: 3. The node needs such NICs: `nic_kind: ethernet`.
    """
    return _without_gids(healthy, want, lambda _, kind: kind == "RoCE v2")


def gid_of_address_missing(healthy: Healthy, want: OneRdmaPort) -> Patch:
    """The interface of a RoCE port has no IPv4 address: the port has only the GIDs of its link.

    `device`, the number of mlx5_<N>: 3. The node needs such NICs: `nic_kind: ethernet`. Only a
    baseline that gives the index of the GID detects it.
    """
    return _without_gids(healthy, want, lambda gid, _: ":ffff:" in gid)


def _without_gids(
    healthy: Healthy, want: OneRdmaPort, is_gone: Callable[[str, str], bool]
) -> Patch:
    port, _ = port_of(healthy, want.device)
    types, gids = f"{port}/gid_attrs/types", f"{port}/gids"
    listed = (path.rpartition("/") for path in healthy.files)
    known = [index for folder, _, index in listed if folder == types]
    removed = [
        index
        for index in known
        if is_gone(healthy.read(f"{gids}/{index}"), healthy.read(f"{types}/{index}"))
    ]
    if not removed:
        raise FaultError("the port is not a RoCE port; give the node nic_kind: ethernet")
    files: dict[str, Content] = {f"{gids}/{index}": f"{NO_GID}\n" for index in removed}
    kinds = ("types", "ndevs")
    attributes = (f"{port}/gid_attrs/{kind}/{index}" for kind in kinds for index in removed)
    return Patch(files, gone_paths=frozenset(attributes))


def _efa(healthy: Healthy) -> tuple[str, str]:
    """The name of the first EFA device, and its folder. Raises FaultError."""
    drivers = healthy.links.items()
    for name, place in sorted(linked(healthy, DEVICES).items()):
        function = place.rsplit("/", 2)[0]
        if any(path == f"{function}/driver" and to.endswith("/efa") for path, to in drivers):
            return name, place
    raise FaultError("the node has no EFA; give it nic_kind: efa")


def efa_unbound(healthy: Healthy, want: NoParams) -> Patch:
    """The driver is not bound to the first EFA, which is on the PCI bus.

    The node needs such NICs: `nic_kind: efa`.
    """
    name, place = _efa(healthy)
    function = place.rsplit("/", 2)[0]
    bound = f"sys/bus/pci/drivers/efa/{posixpath.basename(function)}"
    removed = (f"{function}/infiniband", f"{function}/driver", f"{DEVICES}/{name}", bound)
    return Patch(gone_paths=frozenset(removed))


def efa_down(healthy: Healthy, want: NoParams) -> Patch:
    """The port of the first EFA is down.

    The node needs such NICs: `nic_kind: efa`.
    """
    port = f"{_efa(healthy)[1]}/ports/1"
    return Patch({f"{port}/state": "1: DOWN\n", f"{port}/phys_state": "3: Disabled\n"})


class BitErrors(OneRdmaPort):
    effective: Rate = 3e-9
    raw: Rate = 2e-4


def link_bit_errors(healthy: Healthy, want: BitErrors) -> Patch:
    """A link has bit errors that its error correction cannot repair, according to mlxlink.

    `device`, the number of mlx5_<N>: 3; `effective` rate, after correction, 3e-9; `raw`, 2e-4.
    """
    return _link(healthy, want, effective=_rate(want.effective), raw=_rate(want.raw))


class RawErrors(OneRdmaPort):
    raw: Rate = 2e-4


def link_raw_errors(healthy: Healthy, want: RawErrors) -> Patch:
    """A link has many bit errors; its error correction repairs all of them, according to mlxlink.

    `device`, the number of mlx5_<N>: 3; `raw` rate, 2e-4.
    """
    return _link(healthy, want, raw=_rate(want.raw))


def _link(healthy: Healthy, want: OneRdmaPort, **rates: str) -> Patch:
    port, _ = port_of(healthy, want.device)
    document = link_told(speed="IB-NDR", **rates)
    return Patch(root_files={f"{LINKS}/{port.split('/')[-3]}.json": document})


def _rate(rate: float) -> str:
    """As mlxlink prints it.

    >>> _rate(3e-9)
    '3E-9'
    """
    digits, _, power = f"{rate:.0e}".partition("e")
    return f"{digits}E{int(power)}"


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "efa-down": (NoParams, efa_down),
    "efa-unbound": (NoParams, efa_unbound),
    "link-bit-errors": (BitErrors, link_bit_errors),
    "link-raw-errors": (RawErrors, link_raw_errors),
    "rdma-address-missing": (OneRdmaPort, gid_of_address_missing),
    "rdma-gid-missing": (OneRdmaPort, gid_missing),
    "rdma-interface-missing": (OneRdmaPort, rdma_interface_missing),
    "rdma-names-swapped": (NoParams, rdma_names_swapped),
}
