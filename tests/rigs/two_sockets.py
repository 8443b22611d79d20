"""This machine with two NUMA nodes, as nodevet sees it.

Only files of /sys are simulated: the nodes, with half of the CPUs each, and the PCI functions of
the GPUs. They lie over the kernel's own in a mount namespace of nodevet's. The CPUs, the processes
on them and their numa_maps are the kernel's: on a machine with one node, all memory is on node 0.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

from gpu_load import LoadedMachine, bus_id

from nodevet_sim import cpu_files, pci_files
from nodevet_sim.cpu_files import Content
from nodevet_sim.machine import SimulatedFunction, SimulatedMachine

FUNCTIONS = "sys/bus/pci/devices"
BOUND = f"""
for folder in {cpu_files.NODES} {FUNCTIONS}; do mount --bind "$1/$folder" "/$folder" || exit; done
shift
exec "$@"
"""


@contextmanager
def two_sockets(machine: LoadedMachine, gpus: int, node: int) -> Iterator[LoadedMachine]:
    """The machine with a second socket. `node`: of its GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        write(described(gpus, node), Path(folder))
        yield replace(machine, under=("unshare", "--mount", "sh", "-c", BOUND, "sh", folder))


def described(gpus: int, node: int) -> SimulatedMachine:
    functions = (
        SimulatedFunction(bus_id(index), "10de:2330", "030200", numa_node=node, driver=None)
        for index in range(gpus)
    )
    return SimulatedMachine(
        hostname="",
        machine_id="",
        cores_per_socket=(os.cpu_count() or 2) // 2,
        smt=False,
        node_memory_kb=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2048,
        gpus=tuple(functions),
    )


def write(machine: SimulatedMachine, into: Path) -> None:
    for path, content in files(machine).items():
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    for path, goal in cpu_files.links(machine):
        if path.startswith(f"{cpu_files.NODES}/"):
            (into / path).symlink_to(goal)
    for real in Path("/", FUNCTIONS).iterdir():
        (into / FUNCTIONS / real.name).symlink_to(real.readlink())


def files(machine: SimulatedMachine) -> Mapping[str, Content]:
    """Those of the nodes, and of each function in the folder that has links to the real ones."""
    places = {f"sys/{place}": address for address, (place, _) in pci_files.placed(machine).items()}
    found = {}
    for path, content in chain(cpu_files.files(machine), pci_files.files(machine)):
        folder, _, name = path.rpartition("/")
        if folder in places:
            found[f"{FUNCTIONS}/{places[folder]}/{name}"] = content
        elif path.startswith(f"{cpu_files.NODES}/"):
            found[path] = content
    return found
