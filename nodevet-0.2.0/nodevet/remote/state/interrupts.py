"""The interrupts of a PCI function, by its address: the CPUs that each may go to."""

from nodevet.remote.look import absent, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.pci_names import ADDRESS
from nodevet.remote.probe.collectors.pci import DEVICES
from nodevet.remote.probe.collectors.pci_settings import MOST_IRQS, NUMBER
from nodevet.remote.probe.cpulist import format_cpulist, parse_cpulist
from nodevet.remote.probe.files import names, parsed

WORDS = r"smp_affinity|set_irq_affinity|mlnx_affinity|mlnx_tune\b|\btuna\b.*(?:--irqs|-q)"
OPENIB = ("/etc/infiniband/openib.conf", r"(?i)^\s*RUN_AFFINITY_TUNER\s*=\s*[\"']?y")
TUNED = r"^\s*(?:default_irq_smp_affinity|isolated_cores)\s*=|^\s*\[irq"


def look(root: str, address: str) -> "dict[str, object]":
    """The smp_affinity_list of each interrupt, in the order of their numbers, which change from
    boot to boot; absent without interrupts."""
    if not ADDRESS.match(address):
        raise ValueError("not the address of a PCI function")
    try:
        found = names(root, "{}/{}/msi_irqs".format(DEVICES, address), MOST_IRQS)
    except FileNotFoundError:
        return absent()
    irqs = sorted(int(name) for name in found if NUMBER.match(name))
    paths = ["/proc/irq/{}/smp_affinity_list".format(irq) for irq in irqs]
    return present([format_cpulist(parsed(root, path, parse_cpulist)) for path in paths])


def patterns(root: str, address: str) -> "Patterns":
    """Scripts that place interrupts. The fix itself agrees with irqbalance."""
    return Patterns(WORDS, files=(OPENIB,), tuned=TUNED)
