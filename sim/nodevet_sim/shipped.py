"""Healthy machines for the shipped GPU profiles, and for GPUs at given addresses. Pure.

Unknown values of a machine come from a common server of its time: the baselines judge only GPUs,
links, NUMA and governors, which come from the profile.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nodevet_sim.machine import (
    ROOT_PORT,
    SimulatedFunction,
    SimulatedLink,
    SimulatedMachine,
    behind,
    hgx,
    machine_id,
    port,
    workstation,
)

AMD_ROOT_PORT = "1022:1483"  # 2nd and 3rd generation EPYC
MOST_GPUS = 64
MOST_DEVICES = 16  # NICs, and as many NVMe
RATES = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # PCIe generation: GT/s per lane
DEFAULT_LINK = SimulatedLink()  # Gen5 x16


@dataclass(frozen=True)
class ProfileMachine:
    """The machine that a profile's GPUs usually sit in."""

    device: str
    subsystem: str
    count: int  # of GPUs, where nothing is said
    link: SimulatedLink = DEFAULT_LINK
    cores: int = 56  # of each socket
    sockets: int = 2
    class_code: str = "030200"
    dmi: tuple[str, str] = ("Dell Inc.", "PowerEdge XE9680")
    amd: bool = False
    flavour: str = "open"
    nvswitches: int = 0
    governor: str = "performance"


BLACKWELL = ("Dell Inc.", "PowerEdge XE9780")
TRAY = ("NVIDIA", "GB200 NVL")
KINDS = {
    "h100-sxm": ProfileMachine("10de:2330", "10de:16c1", 8),
    "h200-sxm": ProfileMachine("10de:2335", "10de:18be", 8),
    "a100-sxm-80": ProfileMachine(
        "10de:20b2", "10de:1463", 8, SimulatedLink(16.0, 16, 16.0, 16), 64,
        dmi=("NVIDIA", "DGXA100 920-23687-2530-000"), amd=True, nvswitches=6,
    ),
    "a100-sxm-40": ProfileMachine(
        "10de:20b0", "10de:134f", 8, SimulatedLink(16.0, 16, 16.0, 16), 64,
        dmi=("NVIDIA", "DGXA100 920-23687-2530-000"), amd=True, nvswitches=6,
    ),
    "l40s": ProfileMachine(
        "10de:26b9", "10de:1851", 4, SimulatedLink(2.5, 16, 16.0, 16), 32,
        class_code="030200", dmi=("Supermicro", "SYS-421GE-TNRT"),
    ),
    "t4": ProfileMachine(
        "10de:1eb8", "10de:12a2", 4, SimulatedLink(8.0, 8, 8.0, 16), 16,
        dmi=("Dell Inc.", "PowerEdge R740"), flavour="proprietary",
    ),
    "b200": ProfileMachine("10de:2901", "10de:1999", 8, dmi=BLACKWELL),
    "b300": ProfileMachine("10de:3182", "10de:20e6", 8, dmi=BLACKWELL),
    "gb200": ProfileMachine("10de:2941", "10de:2046", 4, cores=72, dmi=TRAY),
    "gb300": ProfileMachine("10de:31c2", "10de:21f1", 4, cores=72, dmi=TRAY),
    "rtx-pro-6000": ProfileMachine(
        "10de:2bb5", "10de:204e", 8, cores=32, dmi=("Supermicro", "SYS-522GA-NRT")
    ),
    "rtx-4090": ProfileMachine(
        "10de:2684", "1458:40bf", 1, SimulatedLink(2.5, 16, 16.0, 16), 16, 1, "030000",
        ("ASUSTeK COMPUTER INC.", "ESC8000A-E11"), amd=True, flavour="proprietary",
    ),
}  # fmt: skip


def shipped_machine(
    profile: str,
    count: int | None = None,
    *,
    name: str,
    sockets: int | None = None,
    cores: int | None = None,
    numa_per_socket: int = 1,
) -> SimulatedMachine:
    """The healthy machine for GPUs of a shipped profile. Raises KeyError for another name."""
    kind = KINDS[profile]
    count = kind.count if count is None else count
    shape = (sockets or kind.sockets, cores or kind.cores, numa_per_socket)
    if profile in ("h100-sxm", "h200-sxm") and count <= 8:
        return hgx(
            name, gpus=count, device=kind.device, subsystem=kind.subsystem,
            sockets=shape[0], cores_per_socket=shape[1], numa_per_socket=shape[2],
        )  # fmt: skip
    if profile == "rtx-4090" and count == 1 and shape[0] == shape[2] == 1:
        return replace(workstation(name), cores_per_socket=shape[1])
    gpu = SimulatedFunction(
        "", kind.device, kind.class_code, kind.subsystem, driver="nvidia", link=kind.link
    )
    gpus = [
        replace(gpu, address=f"0000:{3 * place + 1:02x}:00.0", numa_node=-1)
        for place in range(count)
    ]
    return server(name, gpus, kind, shape=shape, nics=2, nvme=2)


PLAIN = ProfileMachine("", "", 0, cores=32, dmi=("Supermicro", "SYS-741GE-TNRT"))


def server(
    name: str,
    gpus: Sequence[SimulatedFunction],
    kind: ProfileMachine = PLAIN,
    *,
    shape: tuple[int, int, int] | None = None,
    nics: int = 0,
    nvme: int = 0,
) -> SimulatedMachine:
    """A server with these GPUs, each bus below its own root port.

    `shape` is sockets, cores of each, NUMA nodes of each. A GPU without a NUMA node gets
    one: the first GPUs the first node. A GPU on a root bus (:00:) has no port above it.
    """
    sockets, cores, parts = shape or (kind.sockets, kind.cores, 1)
    nodes = sockets * parts
    root = AMD_ROOT_PORT if kind.amd else ROOT_PORT
    below = []
    for place, gpu in enumerate(gpus):
        node = place * nodes // len(gpus) if gpu.numa_node < 0 else gpu.numa_node
        below.append(_place_below_root(replace(gpu, numa_node=node), root))
    machine = SimulatedMachine(
        hostname=name,
        machine_id=machine_id(name),
        dmi=kind.dmi,
        sockets=sockets,
        cores_per_socket=cores,
        numa_per_socket=parts,
        node_memory_kb=528000000 // parts,
        gpus=tuple(below),
        nvidia_flavour=kind.flavour,
    )
    if kind.amd:
        machine = replace(
            machine,
            cpu_vendor="AuthenticAMD",
            cpu_model="AMD EPYC 7742 64-Core Processor",
            cpufreq_driver="acpi-cpufreq",
            governors_available=(
                "conservative", "ondemand", "userspace", "powersave", "performance", "schedutil",
            ),
            frequency_khz=(1500000, 2250000),
            distance=32,
            epp=None,
            no_turbo=None,
        )  # fmt: skip
    switch = SimulatedFunction("", "10de:1af1", "068000", "10de:1463", driver="nvidia-nvswitch")
    switches = [replace(switch, link=SimulatedLink(5.0, 2, 16.0, 4))] * kind.nvswitches
    return with_devices(_add_functions(machine, switches), nics, nvme)


def _place_below_root(function: SimulatedFunction, root: str) -> SimulatedFunction:
    """The function below a root port with the same link, unless it is on the root bus."""
    domain, bus, _ = function.address.split(":")
    if bus == "00":
        return function
    link = function.link
    if link is not None:
        link = replace(link, gts_max=max(link.gts_max or 0.0, 32.0 if root == ROOT_PORT else 16.0))
    number = int(bus, 16)
    above = f"{domain}:{number - 1:02x}:01.0" if number > 1 else f"{domain}:00:01.0"
    return behind(function, port(above, root, function.numa_node, link))


NICS = {  # kind -> a ConnectX-7 of that kind, or the adapter of a p5 instance
    "infiniband": SimulatedFunction("", "15b3:1021", "020700", "15b3:0040", driver="mlx5_core"),
    "ethernet": SimulatedFunction("", "15b3:1021", "020000", "15b3:0040", driver="mlx5_core"),
    "efa": SimulatedFunction("", "1d0f:efa2", "020000", "1d0f:efa2", driver="efa", revision="00"),
}
NVME = SimulatedFunction(
    "", "1344:51c3", "010802", "1028:2232", driver="nvme", link=SimulatedLink(16.0, 4, 16.0, 4),
    revision="01",
)  # fmt: skip


def with_devices(
    machine: SimulatedMachine, nics: int | None, nvme: int | None, nic_kind: str | None = None
) -> SimulatedMachine:
    """The machine with this many NICs and NVMe: the last ones go, new ones get root ports.

    None leaves those there are. With `nic_kind`, of NICS, all NICs are of that kind.
    """
    if nic_kind is not None:
        others = (_kind(function, NICS[nic_kind]) for function in machine.others)
        machine = replace(machine, others=tuple(others))
    for model, count in ((NICS[nic_kind or "infiniband"], nics), (NVME, nvme)):
        if count is None:
            continue
        same = [
            function
            for function in machine.others
            if function.class_code[:4] == model.class_code[:4]
        ]
        removed = {function.address for function in same[count:]}
        left = tuple(function for function in machine.others if function.address not in removed)
        machine = _add_functions(replace(machine, others=left), [model] * (count - len(same)))
    return machine


def _kind(function: SimulatedFunction, model: SimulatedFunction) -> SimulatedFunction:
    """A NIC as another model in the same place; any other function unchanged."""
    if not function.class_code.startswith("02"):
        return function
    place = {name: getattr(function, name) for name in ("address", "numa_node", "link", "ports")}
    return replace(model, **place)


def _add_functions(
    machine: SimulatedMachine, devices: Iterable[SimulatedFunction]
) -> SimulatedMachine:
    """More functions, each below a root port, in the first PCI domain that has room."""
    for device in devices:
        domain, bus = _free_bus(machine)
        nodes = machine.sockets * machine.numa_per_socket
        node = (bus // 2) % nodes
        placed = replace(device, address=f"{domain:04x}:{bus + 1:02x}:00.0", numa_node=node)
        root = AMD_ROOT_PORT if machine.cpu_vendor == "AuthenticAMD" else ROOT_PORT
        machine = replace(machine, others=(*machine.others, _place_below_root(placed, root)))
    return machine


def _free_bus(machine: SimulatedMachine) -> tuple[int, int]:
    """A PCI domain without GPUs and an even bus in it with two free numbers."""
    taken = [function.address.split(":") for function in machine.functions]
    theirs = {int(function.address.split(":")[0], 16) for function in machine.gpus}
    domain = next(number for number in range(1, 256) if number not in theirs)
    buses = {int(bus, 16) for where, bus, _ in taken if int(where, 16) == domain}
    return domain, next(bus for bus in range(0, 254, 2) if not buses & {bus, bus + 1})
