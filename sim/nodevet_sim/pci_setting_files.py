"""How a healthy machine's PCI functions are set: capabilities, IOMMU groups, interrupts. Pure.

PCI Express Base 5.0, 7.5.3 and 7.7.11; drivers/iommu/iommu.c, kernel/irq/proc.c in the kernel.
"""

from collections.abc import Iterator

from nodevet_sim import pci_files
from nodevet_sim.cpu_files import Files, Links
from nodevet_sim.machine import SimulatedFunction, SimulatedMachine

EXPRESS, ACS = 0x40, 0x100  # where these capabilities are
SIZE = 0x110  # of what is defined; a real one has 4096 bytes
ENDPOINT, ROOT_PORT = 0, 4
PAYLOAD_256, PAYLOAD_512, READ_512, READ_4096 = 1, 2, 2, 5  # 128 bytes, doubled so often
RELAXED, NO_SNOOP, EXTENDED_TAG = 0x10, 0x800, 0x100
ACS_OF_A_PORT = 0x5F  # SrcValid TransBlk ReqRedir CmpltRedir UpstreamFwd DirectTrans
FIRST_IRQ = 100
IRQS = {"gpu": 1, "nic": 4, "nvme": 4}


def files(machine: SimulatedMachine) -> Files:
    placed, grouped = pci_files.placed(machine), groups(machine)
    for address, (place, function) in placed.items():
        if function.revision != "ff":
            head = pci_files.config(function, machine)
            yield f"sys/{place}/config", config(head, function)
        if address in grouped:
            yield f"sys/kernel/iommu_groups/{grouped[address]}/type", "identity\n"
    for number, (place, function) in irqs(machine):
        known = function.numa_node in machine.numa_nodes
        cpus = machine.cpus_of_node(function.numa_node) if known else machine.cpus
        cpu = cpus[number % len(cpus)]
        yield f"sys/{place}/msi_irqs/{number}", "msix\n"
        yield f"proc/irq/{number}/effective_affinity_list", f"{cpu}\n"
        yield f"proc/irq/{number}/smp_affinity_list", f"{cpu}\n"


def links(machine: SimulatedMachine) -> Links:
    grouped = groups(machine)
    for address, (place, _) in pci_files.placed(machine).items():
        if address in grouped:
            up = "../" * (place.count("/") + 1)
            yield f"sys/{place}/iommu_group", f"{up}kernel/iommu_groups/{grouped[address]}"


def groups(machine: SimulatedMachine) -> dict[str, int]:
    """The IOMMU group of each function; none without an IOMMU."""
    if "iommu=pt" not in machine.cmdline.split():
        return {}
    return {function.address: number for number, function in enumerate(machine.functions)}


def irqs(machine: SimulatedMachine) -> Iterator[tuple[int, tuple[str, SimulatedFunction]]]:
    """Every interrupt with its function and that function's directory."""
    number = FIRST_IRQ
    for place, function in pci_files.placed(machine).values():
        for _ in range(IRQS.get(kind(function), 0) if function.driver else 0):
            yield number, (place, function)
            number += 1


def kind(function: SimulatedFunction) -> str:
    code = function.class_code
    if function.id.startswith("10de:") and code[:4] in ("0300", "0302"):
        return "gpu"
    return "nic" if code[:2] == "02" else "nvme" if code[:4] == "0108" else ""


def config(head: bytes, function: SimulatedFunction) -> bytes:
    """The configuration space with this head, and what its capabilities say."""
    space = bytearray(head.ljust(SIZE, b"\0"))
    port = function.class_code.startswith("0604")
    space[0x34] = EXPRESS
    read = READ_4096 if kind(function) in ("gpu", "nic") else READ_512
    control = RELAXED | NO_SNOOP | EXTENDED_TAG | PAYLOAD_256 << 5 | read << 12
    words = {
        EXPRESS: 0x10,  # the last capability
        EXPRESS + 2: 2 | (ROOT_PORT if port else ENDPOINT) << 4,
        EXPRESS + 4: PAYLOAD_512,
        EXPRESS + 8: PAYLOAD_256 << 5 if port else control,
        EXPRESS + 16: 0,
    }
    if port:
        words |= {ACS: 0x0D, ACS + 2: 1, ACS + 4: ACS_OF_A_PORT, ACS + 6: 0}
    for at, word in words.items():
        space[at : at + 2] = word.to_bytes(2, "little")
    return bytes(space)
