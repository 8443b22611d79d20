"""A node from what `nvidia-smi -q -x` printed on a real one: NVML state and PCIe functions.

The schemas v10 (driver 418) to v13 (580 and later). sim/nodevet_sim/xml/values.py says which
element gives which value, and which printed values cannot be converted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

from nodevet_sim.machine import (
    SimulatedFunction,
    SimulatedLink,
    SimulatedMachine,
    behind,
    machine_id,
    port,
)
from nodevet_sim.state import StateError, line
from nodevet_sim.xml.document import SAVE, XmlDocument, read_document
from nodevet_sim.xml.parts import (
    event_reasons,
    fabric,
    processes,
    recovery_action,
    virtualization_mode,
)
from nodevet_sim.xml.text import NOTHING, WITHHELD, bus_id, convert, element_text, plain, plainly
from nodevet_sim.xml.text import identity as release
from nodevet_sim.xml.values import IDENTITY, READINGS, rows

ROOT = "nvidia_smi_log"
GPUS = 255
GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # GT/s per lane, by generation
ROOT_PORT = "8086:352a"
WITH_DISPLAY = ("GEFORCE", "QUADRO", "TITAN", "NVS", "NVIDIA_RTX")  # start of the brand
IN_GUESTS = ("PASSTHROUGH", "VGPU")
MADE_UP = "00fe"  # the PCI domain of GPUs whose address was withheld
GUEST = ("QEMU", "Standard PC (Q35 + ICH9, 2009)")  # vendor and product, as DMI has them
OPEN_ONLY = ("HMM", "ATS")  # addressing modes that only the open kernel modules have


@dataclass(frozen=True)
class XmlGpu:
    """One <gpu>. `values`: its NVML state, by the key after `gpu.N.`; if nvidia-smi printed an NVML
    error instead of a value, the value is the error's name.
    """

    index: int
    bus_id: str  # as sysfs spells it: 0000:19:00.0
    class_code: str  # 030200, or 030000 where it drives displays
    lost: bool
    values: Mapping[str, str]
    link_generation_host_max: int | None = None

    def _text(self, key: str) -> str | None:
        value = self.values.get(key)
        return None if value is None or value.startswith("NVML_ERROR_") else value

    def _number(self, key: str) -> int | None:
        value = None if self.lost else self._text(key)
        return None if value is None else int(value)

    @property
    def pci_device(self) -> str | None:
        """vendor:device, 10de:2330"""
        return self._text("pci_device")

    @property
    def pci_subsystem(self) -> str | None:
        """vendor:device of the board"""
        return self._text("pci_subsystem")

    @property
    def minor_number(self) -> int | None:
        """Of /dev/nvidia<minor>; a lost GPU keeps it. None: nvidia-smi did not say."""
        minor = self._text("minor_number")
        return None if minor is None else int(minor)

    @property
    def link_generation(self) -> int | None:
        return self._number("pcie_generation")

    @property
    def link_generation_max(self) -> int | None:
        """Of GPU and host together."""
        return self._number("pcie_generation_max")

    @property
    def link_generation_device_max(self) -> int | None:
        """Of only the GPU; drivers before 525 do not report it."""
        return self._number("pcie_generation_device_max")

    @property
    def link_width(self) -> int | None:
        return self._number("pcie_width")

    @property
    def link_width_max(self) -> int | None:
        return self._number("pcie_width_max")

    @property
    def link(self) -> SimulatedLink:
        """As sysfs has it of the GPU. A lost GPU has no known link."""
        highest = self.link_generation_device_max or self.link_generation_max
        return SimulatedLink(
            _gts(self.link_generation), self.link_width, _gts(highest), self.link_width_max
        )

    @property
    def port_link(self) -> SimulatedLink:
        """The same of the port above it. Its possible width is not printed; drivers before 525 do
        not print its possible speed either: NVML's maxima are for GPU and port together.
        """
        highest = _gts(self.link_generation_host_max)
        return SimulatedLink(_gts(self.link_generation), self.link_width, highest, None)


@dataclass(frozen=True)
class XmlNode:
    """One file. `attached_gpus` is what nvidia-smi counted: more than in `gpus` if it printed only
    some of them, or the file was cut.
    """

    path: Path
    driver_version: str | None  # None: withheld, or not in the file
    cuda_version: str | None
    attached_gpus: int | None
    gpus: tuple[XmlGpu, ...]
    open_modules: bool = False  # the GPUs show that the open kernel modules were loaded

    def state(self) -> str:
        """The NVML state. The order of the GPUs is the file's; `count` is how many it has.

        nvml_version is the version of the library that comes with such a driver. A lost GPU has
        `lost = 1` and what was still known of its identity.
        """
        lines = [line("count", len(self.gpus))]
        if self.driver_version is not None:
            lines.append(line("driver_version", self.driver_version))
        if self.cuda_version is not None:
            lines.append(line("cuda_version", self.cuda_version))
        if self.cuda_version is not None and self.driver_version is not None:
            major = self.cuda_version.split(".")[0]
            lines.append(line("nvml_version", f"{major}.{self.driver_version}"))
        for gpu in self.gpus:
            lines += [line(f"gpu.{gpu.index}.{key}", value) for key, value in gpu.values.items()]
        return "\n".join(lines) + "\n"

    @property
    def is_guest(self) -> bool:
        """Whether the GPUs belonged to a virtual machine."""
        return any(gpu.values.get("virtualization_mode") in IN_GUESTS for gpu in self.gpus)

    def minors(self) -> tuple[int, ...]:
        """The minor number of each GPU; the lowest free one if nvidia-smi did not print it."""
        taken = {gpu.minor_number for gpu in self.gpus}
        free = iter(sorted(set(range(len(self.gpus) + len(taken))) - taken))
        return tuple(
            next(free) if gpu.minor_number is None else gpu.minor_number for gpu in self.gpus
        )

    def machine(
        self, name: str = "node", numa: Mapping[str, int] | None = None
    ) -> SimulatedMachine:
        """A plausible host of these GPUs: each below a root port of its own, with the links of the
        file, but directly on the host bridge if its bus is 00 (a virtual machine).

        `numa` is the NUMA node of some or all GPUs, by bus id; without it they are -1, and the host
        has one node. It is a virtual machine if a GPU says Pass-Through or VGPU. Everything except
        the GPUs, their ports and the driver is invented, and so is the id of a GPU if the file has
        no NVIDIA id: that of another GPU, or 10de:0000.
        """
        nodes = dict(numa or {})
        unknown = sorted(nodes.keys() - {gpu.bus_id for gpu in self.gpus})
        if unknown:
            there = ", ".join(gpu.bus_id for gpu in self.gpus)
            raise StateError(f"{self.path}: no GPU {', '.join(unknown)}; choose one of: {there}")
        device = next(filter(None, map(_nvidia_id, self.gpus)), "10de:0000")
        board = next((gpu.pci_subsystem for gpu in self.gpus if gpu.pci_subsystem), "10de:0000")
        ports = self._ports(nodes)
        functions = tuple(
            behind(
                SimulatedFunction(
                    gpu.bus_id,
                    _nvidia_id(gpu) or device,
                    gpu.class_code,
                    gpu.pci_subsystem or board,
                    nodes.get(gpu.bus_id, -1),
                    "nvidia",
                    gpu.link,
                    "ff" if gpu.lost else "a1",
                ),
                *ports.get(gpu.bus_id[:-5], ()),
            )
            for gpu in self.gpus
        )
        named = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
        counted = (f"nvidia{minor}" for minor in self.minors())
        return SimulatedMachine(
            hostname=name,
            machine_id=machine_id(name),
            dmi=GUEST if self.is_guest else ("nodevet", "simulated host"),
            sockets=max(nodes.values(), default=0) + 1,
            cores_per_socket=8,
            gpus=functions,
            nvidia_version=self.driver_version,
            nvidia_flavour="open" if self.open_modules else "proprietary",
            device_nodes=tuple(f"/dev/{node}" for node in (*counted, *named)),
        )

    def _ports(self, nodes: Mapping[str, int]) -> dict[str, tuple[SimulatedFunction, ...]]:
        """`domain:bus` -> the root port above it, on bus 00 where no GPU is."""
        taken = {gpu.bus_id for gpu in self.gpus}
        ports: dict[str, tuple[SimulatedFunction, ...]] = {}
        for gpu in self.gpus:
            bus = gpu.bus_id[:-5]
            domain = bus.split(":")[0]
            if bus == f"{domain}:00" or bus in ports:
                continue
            places = (f"{domain}:00:{at % 31 + 1:02x}.{at // 31}" for at in range(31 * 8))
            address = next(place for place in places if place not in taken)
            taken.add(address)
            ports[bus] = (port(address, ROOT_PORT, nodes.get(gpu.bus_id, -1), gpu.port_link),)
        return ports


def _nvidia_id(gpu: XmlGpu) -> str | None:
    """Its device id; None if it has none, or one that was made unrecognizable."""
    device = gpu.pci_device
    return device if device is not None and device.startswith("10de:") else None


def _gts(generation: int | None) -> float | None:
    return GTS.get(generation or 0)


def read(path: Path) -> XmlNode:
    """Read a file of at most 64 MiB. Raises StateError: `file:line:column: what; what to do`."""
    document = read_document(path)
    root = document.root
    if root.tag != ROOT:
        raise document.error(root, f"the root element is <{root.tag[:80]}>, not <{ROOT}>; {SAVE}")
    version = convert(document, root.find("driver_version"), release)
    elements = root.findall("gpu")
    if version is None and not elements:
        raise document.error(root, f"no <driver_version> and no <gpu>; {SAVE}")
    if len(elements) > GPUS:
        raise document.error(elements[GPUS], f"more than {GPUS} GPUs; remove some")
    cuda = convert(document, root.find("cuda_version"), release)
    attached = convert(document, root.find("attached_gpus"), plain)
    gpus = tuple(_gpu(document, element, index) for index, element in enumerate(elements))
    for gpu, element in zip(gpus, elements, strict=True):
        same = next(other for other in gpus if other.bus_id == gpu.bus_id)
        if same is not gpu:
            message = f"GPU {gpu.index} has the bus id of GPU {same.index}, {gpu.bus_id}"
            raise document.error(element, f"{message}; remove one of them")
    modes = {element_text(element.find("addressing_mode")) for element in elements}
    architectures = {gpu.values.get("gpu_architecture") for gpu in gpus}
    return XmlNode(
        path,
        None if version is None or version.startswith("NVML_ERROR_") else version,
        None if cuda is None or cuda.startswith("NVML_ERROR_") else cuda,
        None if attached is None or attached.startswith("NVML_ERROR_") else int(attached),
        gpus,
        bool(modes.intersection(OPEN_ONLY)) or "BLACKWELL" in architectures,
    )


def _gpu(document: XmlDocument, element: Element, index: int) -> XmlGpu:
    address = _bus_id(document, element, index)
    identity = {"bus_id": address, **rows(document, element, IDENTITY)}
    readings = rows(document, element, READINGS)
    words = {plainly(part.text or "") for part in element.iter()}
    answered = any(not value.startswith("NVML_ERROR_") for value in readings.values())
    lost = "gpu is lost" in words or ("err!" in words and not answered)
    if lost:
        known = {key: value for key, value in identity.items() if not value.startswith("NVML_")}
        values = {**known, "lost": "1"}
    else:
        values = {
            **identity,
            **readings,
            **event_reasons(element),
            **virtualization_mode(document, element),
            **recovery_action(document, element),
            **fabric(document, element),
            **processes(document, element),
        }
    host = convert(
        document, element.find("pci/pci_gpu_link_info/pcie_gen/max_host_link_gen"), plain
    )
    return XmlGpu(
        index,
        address,
        _class_code(element, identity.get("brand", "")),
        lost,
        values,
        int(host) if host is not None and host.isdecimal() else None,
    )


def _bus_id(document: XmlDocument, element: Element, index: int) -> str:
    """From <pci_bus_id>, else from the attribute `id`; invented if both withhold it. Raises
    StateError."""
    address = convert(document, element.find("pci/pci_bus_id"), bus_id)
    if address is not None and not address.startswith("NVML_ERROR_"):
        return address
    try:
        return bus_id(element.get("id", ""))
    except ValueError:
        if address is not None and plainly(element.get("id", "")) in (*WITHHELD, *NOTHING):
            return f"{MADE_UP}:{index + 1:02x}:00.0"
        what = "a <gpu> without a bus id, neither as its id nor in <pci_bus_id>"
        raise document.error(element, f'{what}; write <gpu id="00000000:3B:00.0">') from None


def _class_code(element: Element, brand: str) -> str:
    """The PCI class: base, sub and interface. Before 555 nvidia-smi does not say it; boards
    of brands with displays are VGA controllers, the others 3D controllers."""
    base, sub = (element_text(element.find(f"pci/pci_{part}_class")) for part in ("base", "sub"))
    if base == "3" and sub in ("0", "2"):
        return f"03{int(sub):02x}00"
    return "030000" if brand.startswith(WITH_DISPLAY) else "030200"
