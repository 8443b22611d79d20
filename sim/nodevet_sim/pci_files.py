"""A machine's PCI functions as kernel files and links. Pure.

Functions lie under sys/devices/pci<domain>:<bus>, below the ports above them, and
sys/bus/pci holds links to them. Documentation/ABI/testing/sysfs-bus-pci and
sysfs-bus-pci-devices-aer_stats in the kernel tree.
"""

from collections.abc import Mapping

from nodevet.remote.probe.cpulist import format_cpulist
from nodevet_sim.cpu_files import Files, Links, lines, mask
from nodevet_sim.machine import SimulatedFunction, SimulatedLink, SimulatedMachine

BUS = "sys/bus/pci"
AER_SERVICE = "pcie002"  # drivers/pci/pcie/portdrv.c: of a root port, its AER service
CONFIG_BYTES = 64  # what an unprivileged reader gets
AER_FILES = {
    "correctable": ("TOTAL_ERR_COR", ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout")),
    "nonfatal": ("TOTAL_ERR_NONFATAL", ("DLP", "SDES", "TLP", "CmpltTO", "UnsupReq")),
    "fatal": ("TOTAL_ERR_FATAL", ("DLP", "SDES", "TLP", "CmpltTO", "UnsupReq")),
}
RESOURCE = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 7  # BARs and ROM


def files(machine: SimulatedMachine) -> Files:
    for place, function in placed(machine).values():
        folder = f"sys/{place}"
        vendor, device = function.id.split(":")
        subsystem_vendor, subsystem_device = function.subsystem.split(":")
        known = function.numa_node in machine.numa_nodes
        cpus = machine.cpus_of_node(function.numa_node) if known else machine.cpus
        values = {
            "class": f"0x{function.class_code}",
            "vendor": f"0x{vendor}",
            "device": f"0x{device}",
            "subsystem_vendor": f"0x{subsystem_vendor}",
            "subsystem_device": f"0x{subsystem_device}",
            "revision": f"0x{function.revision}",
            "numa_node": function.numa_node,
            "local_cpulist": format_cpulist(cpus),
            "local_cpus": mask(cpus, len(machine.cpus)),
            "irq": 0,
            "enable": 1,
        }
        yield from lines(folder, values)
        yield f"{folder}/resource", RESOURCE
        yield f"{folder}/uevent", _uevent(function)
        yield f"{folder}/config", config(function, machine)
        if function.link is not None:
            yield from lines(folder, link_values(function.link))
        if function.aer is not None:
            yield from _aer(folder, function.aer)
    for address, place in _roots(machine).items():
        yield f"sys/{place}/{address}:{AER_SERVICE}/uevent", "DRIVER=aer\n"


def links(machine: SimulatedMachine) -> Links:
    for address, (place, function) in placed(machine).items():
        yield f"{BUS}/devices/{address}", f"../../../{place}"
        up = "../" * (place.count("/") + 1)
        yield f"sys/{place}/subsystem", f"{up}bus/pci"
        if function.driver is not None:
            yield f"sys/{place}/driver", f"{up}bus/pci/drivers/{function.driver}"
            yield f"{BUS}/drivers/{function.driver}/{address}", f"../../../../{place}"
    for address, place in _roots(machine).items():
        service = f"{address}:{AER_SERVICE}"
        yield f"sys/bus/pci_express/drivers/aer/{service}", f"../../../../{place}/{service}"


def _roots(machine: SimulatedMachine) -> dict[str, str]:
    """Address -> directory below sys, of every root port, which reports errors to the kernel."""
    tops = {function.ports[-1].address for function in (*machine.gpus, *machine.others)
            if function.ports}  # fmt: skip
    return {address: place for address, (place, _) in placed(machine).items() if address in tops}


def placed(machine: SimulatedMachine) -> dict[str, tuple[str, SimulatedFunction]]:
    """Address -> (directory below sys, function), of every function and port."""
    places: dict[str, tuple[str, SimulatedFunction]] = {}
    for function in (*machine.gpus, *machine.others):
        place = _place(function)
        places[function.address] = (place, function)
        for port in function.ports:
            place = place.rsplit("/", 1)[0]
            places.setdefault(port.address, (place, port))
    return places


def _place(function: SimulatedFunction) -> str:
    """A function's directory, from the host bridge down through the ports above it."""
    path = [*(port.address for port in reversed(function.ports)), function.address]
    return "/".join([f"devices/pci{path[0].rsplit(':', 1)[0]}", *path])


def _uevent(function: SimulatedFunction) -> str:
    driver = "" if function.driver is None else f"DRIVER={function.driver}\n"
    return (
        f"{driver}PCI_CLASS={int(function.class_code, 16):X}\nPCI_ID={function.id.upper()}\n"
        f"PCI_SUBSYS_ID={function.subsystem.upper()}\nPCI_SLOT_NAME={function.address}\n"
    )


def speed(gts: float | None) -> str:
    """A link's speed as sysfs prints it."""
    return "Unknown" if gts is None else f"{gts:.1f} GT/s PCIe"


def link_values(link: SimulatedLink) -> Mapping[str, object]:
    """The files of a link, without their newlines."""
    return {
        "current_link_speed": speed(link.gts),
        "max_link_speed": speed(link.gts_max),
        "current_link_width": link.width or 0,
        "max_link_width": 255 if link.width_max is None else link.width_max,
    }


def aer_text(name: str, above: Mapping[str, int]) -> str:
    """An aer_dev_<name> file with these counts by kind."""
    total, kinds = AER_FILES[name]
    rows = [f"{kind} {above.get(kind, 0)}\n" for kind in dict.fromkeys((*kinds, *above))]
    return "".join(rows) + f"{total} {sum(above.values())}\n"


def _aer(folder: str, counts: tuple[tuple[str, str, int], ...]) -> Files:
    for name in AER_FILES:
        above = {kind: count for file, kind, count in counts if file == name}
        yield f"{folder}/aer_dev_{name}", aer_text(name, above)


def _bridged(function: SimulatedFunction, machine: SimulatedMachine) -> tuple[int, int] | None:
    """The first and the last bus below a port; None if it is not a port."""
    if not function.class_code.startswith("0604"):
        return None
    below = [
        int(part.address.split(":")[1], 16)
        for leaf in (*machine.gpus, *machine.others)
        for place, port in enumerate(leaf.ports)
        if port.address == function.address
        for part in (leaf, *leaf.ports[:place])
    ]
    return (min(below), max(below)) if below else (0, 0)


def config(function: SimulatedFunction, machine: SimulatedMachine) -> bytes:
    """The head of the configuration space; all ones once the function no longer answers."""
    bridged = _bridged(function, machine)
    if function.revision == "ff":
        return b"\xff" * CONFIG_BYTES
    head = bytearray(CONFIG_BYTES)
    words = [*function.id.split(":"), "0006", "0010"]
    head[:8] = b"".join(int(word, 16).to_bytes(2, "little") for word in words)
    head[8:12] = int(function.class_code + function.revision, 16).to_bytes(4, "little")
    if bridged is None:
        subsystem = [int(word, 16).to_bytes(2, "little") for word in function.subsystem.split(":")]
        head[0x2C:0x30] = b"".join(subsystem)
    else:
        own = int(function.address.split(":")[1], 16)
        head[0x0E] = 1  # header of a bridge
        head[0x18:0x1B] = bytes((own, *bridged))
    return bytes(head)
