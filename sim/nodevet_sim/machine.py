"""Described machines: what a node of a kind is when it is healthy. Pure.

`dataclasses.replace` makes the broken variants. The numbers come from real machines: bus numbers,
switches and ids as on a Dell PowerEdge XE9680 with eight H100.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import NAMESPACE_DNS, uuid5

ROOT_PORT = "8086:352a"  # Intel, 4th generation Xeon
GPU_SWITCH = "1000:c030"  # Broadcom PEX890xx
NVSWITCH_SWITCH = "11f8:4128"  # Microchip PFX


@dataclass(frozen=True)
class SimulatedLink:
    """A PCIe link, now and at most. `None` is what the kernel calls Unknown."""

    gts: float | None = 32.0  # GT/s per lane
    width: int | None = 16
    gts_max: float | None = 32.0
    width_max: int | None = 16


@dataclass(frozen=True)
class SimulatedFunction:
    """A PCI function and the ports above it, nearest first."""

    address: str  # 0000:19:00.0
    id: str  # vendor:device
    class_code: str  # six hex digits
    subsystem: str = "0000:0000"
    numa_node: int = -1
    driver: str | None = None
    link: SimulatedLink | None = SimulatedLink()
    revision: str = "a1"  # ff: the function no longer answers
    aer: tuple[tuple[str, str, int], ...] | None = ()  # (file, kind, count) above zero
    ports: tuple["SimulatedFunction", ...] = ()


@dataclass(frozen=True)
class SimulatedProcess:
    """A process that holds GPUs open, by their /dev/nvidia<minor>."""

    pid: int
    command: str
    gpus: tuple[int, ...] = ()
    cpus_allowed: str | None = None  # None: every CPU
    mems_allowed: str | None = None  # None: every node
    uid: int = 1000
    cgroup: str = "/system.slice/slurmstepd.scope/job_1/step_0"
    started_s: float = 3600.0


@dataclass(frozen=True)
class SimulatedMachine:
    """Everything that the probe reads of a node outside NVML."""

    hostname: str
    machine_id: str
    boot_id: str = "6f1c2a34-0000-4000-8000-5a1e5a1e5a1e"
    uptime_s: float = 864000.0
    kernel: str = "5.15.0-105-generic"
    architecture: str = "x86_64"
    cmdline: str = "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro iommu=pt"
    dmi: tuple[str, str] = ("Dell Inc.", "PowerEdge XE9680")
    cpu_vendor: str = "GenuineIntel"
    cpu_model: str = "Intel(R) Xeon(R) Platinum 8480+"
    sockets: int = 2
    cores_per_socket: int = 56
    smt: bool = True
    numa_per_socket: int = 1  # SNC, NPS
    memory_only_nodes: int = 0  # without CPUs: CXL
    node_memory_kb: int = 1056000000  # of each NUMA node
    distance: int = 21  # between nodes of two sockets
    distance_near: int = 12  # between nodes of one socket
    numa_balancing: int | None = 0
    governor: str = "performance"
    governors_available: tuple[str, ...] = ("performance", "powersave")
    cpufreq_driver: str | None = "intel_pstate"  # None: no cpufreq at all
    cpufreq_per: Literal["cpu", "core", "socket"] = "cpu"  # what shares a policy
    frequency_khz: tuple[int, int] = (800000, 3800000)
    epp: str | None = "performance"
    no_turbo: bool | None = False
    thp: str = "madvise"
    thp_defrag: str = "madvise"
    swap_kb: int = 0
    hugepages: int = 0
    gpus: tuple[SimulatedFunction, ...] = ()
    others: tuple[SimulatedFunction, ...] = ()  # NICs, NVMe, NVSwitches
    modules: tuple[str, ...] = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
    builtin: tuple[str, ...] = ()
    nvidia_version: str | None = "550.90.07"
    nvidia_flavour: str = "open"
    device_nodes: tuple[str, ...] | None = None  # None: one for each GPU and the usual others
    processes: tuple[SimulatedProcess, ...] = field(default=())

    @property
    def functions(self) -> tuple[SimulatedFunction, ...]:
        """Every function with every port above it, each once."""
        by_address: dict[str, SimulatedFunction] = {}
        for function in (*self.gpus, *self.others):
            for part in (function, *function.ports):
                by_address.setdefault(part.address, part)
        return tuple(by_address[address] for address in sorted(by_address))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The paths of the device nodes of NVIDIA's modules."""
        if self.device_nodes is not None:
            return self.device_nodes
        if self.nvidia_version is None:
            return ()
        named = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
        counted = (f"nvidia{minor}" for minor in range(len(self.gpus)))
        copied = ("gdrdrv",) if "gdrdrv" in self.modules else ()
        return tuple(f"/dev/{name}" for name in (*counted, *named, *copied))

    def cpus_of(self, socket: int) -> tuple[int, ...]:
        """The CPUs of a socket: first threads before second ones, as firmware numbers them."""
        cores = range(socket * self.cores_per_socket, (socket + 1) * self.cores_per_socket)
        return self._threads(cores)

    def cpus_of_node(self, node: int) -> tuple[int, ...]:
        """The CPUs of a NUMA node; none if it has only memory."""
        socket, part = divmod(node, self.numa_per_socket)
        if socket >= self.sockets:
            return ()
        ends = [
            socket * self.cores_per_socket + self.cores_per_socket * at // self.numa_per_socket
            for at in (part, part + 1)
        ]
        return self._threads(range(*ends))

    def cpus_of_core(self, cpu: int) -> tuple[int, ...]:
        """The CPUs that share a core with this one, itself among them."""
        cores = self.sockets * self.cores_per_socket
        return self._threads(range(cpu % cores, cpu % cores + 1))

    def _threads(self, cores: range) -> tuple[int, ...]:
        second = (core + self.sockets * self.cores_per_socket for core in cores)
        return (*cores, *second) if self.smt else tuple(cores)

    @property
    def numa_nodes(self) -> range:
        return range(self.sockets * self.numa_per_socket + self.memory_only_nodes)

    @property
    def cpus(self) -> range:
        return range(self.sockets * self.cores_per_socket * (2 if self.smt else 1))


def port(
    address: str, id: str, node: int, link: SimulatedLink | None = SimulatedLink()
) -> SimulatedFunction:
    """A root port, or the port of a switch."""
    return SimulatedFunction(address, id, "060400", "0000:0000", node, "pcieport", link, "04")


def behind(function: SimulatedFunction, *ports: SimulatedFunction) -> SimulatedFunction:
    """The function with these ports above it, nearest first."""
    return replace(function, ports=ports)


def _tray(bus: int, node: int, device: str, subsystem: str) -> Iterator[SimulatedFunction]:
    """A GPU, its NIC and its NVMe below one switch."""
    root = port(f"0000:{bus - 4:02x}:01.0", ROOT_PORT, node)
    up = port(f"0000:{bus - 3:02x}:00.0", GPU_SWITCH, node)
    narrow = SimulatedLink(16.0, 4, 32.0, 4)
    to_nvme = port(f"0000:{bus - 2:02x}:00.0", GPU_SWITCH, node, narrow)
    to_gpu = port(f"0000:{bus - 2:02x}:01.0", GPU_SWITCH, node)
    to_nic = port(f"0000:{bus - 2:02x}:02.0", GPU_SWITCH, node)
    gpu = SimulatedFunction(f"0000:{bus:02x}:00.0", device, "030200", subsystem, node, "nvidia")
    nic = SimulatedFunction(
        f"0000:{bus + 1:02x}:00.0", "15b3:1021", "020700", "15b3:0040", node, "mlx5_core"
    )
    nvme = SimulatedFunction(
        f"0000:{bus - 1:02x}:00.0", "1344:51c3", "010802", "1028:2232", node, "nvme",
        SimulatedLink(16.0, 4, 16.0, 4), "01",
    )  # fmt: skip
    yield behind(gpu, to_gpu, up, root)
    yield behind(nic, to_nic, up, root)
    yield behind(nvme, to_nvme, up, root)


def _nvswitches(node: int) -> Iterator[SimulatedFunction]:
    root = port("0000:80:01.0", ROOT_PORT, node, SimulatedLink(16.0, 8, 32.0, 8))
    up = port("0000:81:00.0", NVSWITCH_SWITCH, node, SimulatedLink(16.0, 8, 16.0, 8))
    for number in range(4):
        link = SimulatedLink(16.0, 2, 16.0, 2)
        down = port(f"0000:82:{number:02x}.0", NVSWITCH_SWITCH, node, link)
        switch = SimulatedFunction(
            f"0000:{0x83 + number:02x}:00.0", "10de:22a3", "068000", "10de:1796", node,
            "nvidia-nvswitch", link,
        )  # fmt: skip
        yield behind(switch, down, up, root)


BUSES = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)


def hgx(
    name: str,
    *,
    gpus: int = 8,
    device: str = "10de:2330",
    subsystem: str = "10de:16c1",
    nvidia_version: str = "550.90.07",
    cores_per_socket: int = 8,
    sockets: int = 2,
    numa_per_socket: int = 1,
) -> SimulatedMachine:
    """A healthy HGX node; the first half of eight GPUs is on the first half of the NUMA nodes.

    Real ones have 48 or 56 cores per socket; every CPU costs forty files and links.
    """
    nodes = sockets * numa_per_socket
    trays = [
        tuple(_tray(bus, place * nodes // len(BUSES), device, subsystem))
        for place, bus in enumerate(BUSES[:gpus])
    ]
    return SimulatedMachine(
        hostname=name,
        machine_id=machine_id(name),
        sockets=sockets,
        numa_per_socket=numa_per_socket,
        cores_per_socket=cores_per_socket,
        gpus=tuple(tray[0] for tray in trays),
        others=(*(function for tray in trays for function in tray[1:]), *_nvswitches(nodes // 2)),
        modules=(
            "gdrdrv",
            "nvidia_fs",
            "nvidia_peermem",
            "nvidia_uvm",
            "nvidia_drm",
            "nvidia_modeset",
            "nvidia",
            "mlx5_core",
        ),
        nvidia_version=nvidia_version,
    )


def workstation(
    name: str,
    *,
    device: str = "10de:2684",
    subsystem: str = "1458:40bf",
    nvidia_version: str = "550.90.07",
) -> SimulatedMachine:
    """A healthy one-socket desktop with one GeForce RTX 4090, idle: its link is at 2.5 GT/s."""
    idle = SimulatedLink(2.5, 16, 16.0, 16)
    gpu = SimulatedFunction("0000:01:00.0", device, "030000", subsystem, -1, "nvidia", idle)
    sound = SimulatedFunction(
        "0000:01:00.1", "10de:22ba", "040300", subsystem, -1, "snd_hda_intel", idle
    )
    above = port("0000:00:01.1", "1022:14db", -1, SimulatedLink(2.5, 16, 32.0, 16))
    nvme_port = port("0000:00:02.1", "1022:14db", -1, SimulatedLink(16.0, 4, 16.0, 4))
    nvme = SimulatedFunction(
        "0000:02:00.0",
        "144d:a80c",
        "010802",
        "144d:a801",
        -1,
        "nvme",
        SimulatedLink(16.0, 4, 16.0, 4),
        "00",
    )
    return SimulatedMachine(
        hostname=name,
        machine_id=machine_id(name),
        dmi=("Gigabyte Technology Co., Ltd.", "X670E AORUS MASTER"),
        cpu_vendor="AuthenticAMD",
        cpu_model="AMD Ryzen 9 7950X 16-Core Processor",
        sockets=1,
        cores_per_socket=16,
        node_memory_kb=65536000,
        governors_available=("conservative", "ondemand", "powersave", "performance", "schedutil"),
        cpufreq_driver="acpi-cpufreq",
        frequency_khz=(400000, 4500000),
        epp=None,
        no_turbo=None,
        gpus=(behind(gpu, above),),
        others=(behind(sound, above), behind(nvme, nvme_port)),
        nvidia_version=nvidia_version,
        nvidia_flavour="proprietary",
    )


def system_uuid(name: str) -> str:
    """The UUID of SMBIOS, which is the same for the same name. The node's BMC reports it, too."""
    return str(uuid5(NAMESPACE_DNS, name))


def system_serial(name: str) -> str:
    """The serial number of SMBIOS, which is the same for the same name."""
    return f"SIM{system_uuid(name)[:8].upper()}"


def machine_id(name: str) -> str:
    """A machine id that is the same for the same name."""
    return name.encode().hex().ljust(32, "0")[:32]
