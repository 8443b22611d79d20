"""The GPUs that a node has or should have, and that NVML does not list (pure).

A source that nodevet could not read shows nothing: without the list of NVML, only a GPU that no
longer answers on the PCI bus, or that the kernel log calls lost, is missing. In a container, or
without permission to open a GPU's device, NVML hides GPUs that are there.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nodevet.checking.xid_events import code_of
from nodevet.checking.xids import OFF_BUS
from nodevet.diagnose.kernel_lines import address_of, gpu_events, log_facts
from nodevet.diagnose.model import MissingGpu
from nodevet.evidence.across import gpu_functions, off_the_bus
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivities
from nodevet.evidence.host import HostInfo
from nodevet.evidence.modules import Modules
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import Finding, Verdict

COUNT = "gpu_count"
SILENT = "it no longer answers on the PCI bus"
UNLISTED = "it is on the PCI bus, but NVML does not list it"
GONE = "it is no longer on the PCI bus, and the kernel log says that it fell off"
POWER_OFF = (
    "drain the node; power it off and on: a reboot may not bring the GPU back; if it is missing "
    "again, reseat or replace it"
)
REFUSED = (
    "drain the node; `dmesg | grep NVRM` says why the driver refused it; reboot, then power the "
    "node off and on; if it is missing again, reseat or replace it"
)
UNBOUND = (
    "drain the node; see with `lsmod` whether the nvidia driver is loaded, and load it; otherwise "
    "`dmesg | grep NVRM` says why the driver refused it"
)
FOREIGN = "unbind that driver, and find what binds it at boot (driverctl, modprobe.d, udev)"
LOOK = (
    "drain the node; power it off and on; compare `lspci -d 10de:` with a healthy node to find the "
    "slot; if it is missing again, reseat or replace it"
)


class Listed(NamedTuple):
    """The GPUs that NVML lists."""

    addresses: frozenset[str]
    unplaced: int  # those without an address


def missing_gpus(
    evidence: Evidence, findings: Iterable[Finding], *, counts: bool = True
) -> tuple[MissingGpu, ...]:
    """`findings`: of the baseline's checks; a waiver of gpu_count for a GPU covers it here too.
    `counts`: whether the baseline says how many GPUs this very node should have."""
    counted = [finding for finding in findings if finding.check == COUNT]
    waived = {finding.subject.bus_id for finding in counted if finding.verdict is Verdict.WAIVED}
    listed = listed_gpus(evidence)
    found = [*_placed_gpus(evidence, listed)]
    if counts and listed is not None and not hides_gpus(evidence):
        there = len(listed.addresses) + listed.unplaced
        found += _uncounted_gpus(evidence, counted, there + len(found))
    return tuple(gpu for gpu in found if gpu.bus_id not in waived)


def listed_gpus(evidence: Evidence) -> Listed | None:
    """None if NVML was not read."""
    data = evidence[GpuActivities].data
    if data is None or data.gpus is None:
        return None
    addresses = [address_of(evidence, gpu) for gpu in data.gpus]
    known = frozenset(filter(None, addresses))
    return Listed(known, addresses.count(None))


def hides_gpus(evidence: Evidence) -> bool:
    """Whether NVML may hide GPUs from nodevet that are there."""
    host, modules = evidence[HostInfo].data, evidence[Modules].data
    nodes = (modules.device_nodes if modules else None) or ()
    in_container = host is not None and host.virtualization == "container"
    return in_container or any(node.openable is False for node in nodes if is_gpu(node.path))


def is_gpu(path: str) -> bool:
    """`/dev/nvidia3`."""
    return path.removeprefix("/dev/nvidia").isdigit()


def _placed_gpus(evidence: Evidence, listed: Listed | None) -> Iterator[MissingGpu]:
    """Those whose address is known; none if a listed GPU has no address, as it may be any of
    them."""
    known = listed.addresses if listed else frozenset()
    if listed and listed.unplaced:
        return
    silent, fallen = off_the_bus(evidence), _fallen_addresses(evidence)
    shows_all = listed is not None and not hides_gpus(evidence)
    for function in gpu_functions(evidence):
        address = function.address
        if address in known:
            continue
        if address in silent:
            yield _missing(evidence, address, (SILENT,), POWER_OFF)
        elif shows_all:
            driver, step = _driver(function)
            step = POWER_OFF if address in fallen else step
            yield _missing(evidence, address, (UNLISTED, *driver), step)
    for address in sorted(fallen - _present_addresses(evidence, known)):
        yield _missing(evidence, address, (GONE,), POWER_OFF)


def _driver(function: PciFunction) -> tuple[tuple[str, ...], str]:
    """(which driver has it, what to do)."""
    if function.is_unbound:
        return ("no driver is bound to it",), UNBOUND
    if function.driver is None:
        return (), REFUSED
    text = f"its driver is {function.driver}"
    return (text,), REFUSED if function.driver == "nvidia" else FOREIGN


def _fallen_addresses(evidence: Evidence) -> frozenset[str]:
    """The addresses of GPUs that fell off the bus, by the kernel log."""
    lost = [event.bus_id for event in gpu_events(evidence) if code_of(event) == OFF_BUS]
    return frozenset(filter(None, lost))


def _present_addresses(evidence: Evidence, listed: frozenset[str]) -> frozenset[str]:
    """The addresses that NVML or the PCI bus has; all that fell off if the bus was not read."""
    data = evidence[Pci].data
    if data is None or data.functions is None:
        return _fallen_addresses(evidence)
    return listed.union(function.address for function in data.functions)


def _uncounted_gpus(
    evidence: Evidence, counted: Iterable[Finding], there: int
) -> Iterator[MissingGpu]:
    """Those that only the baseline's number tells of. `there`: GPUs that are known."""
    expected = max(map(_expected_count, counted), default=0)
    for_guests = len(_of_guests(evidence))
    count = expected - there - for_guests
    if count > 0:
        fact = f"the baseline expects {expected} GPUs, and nodevet found {there + for_guests}"
        yield MissingGpu(count=count, facts=(fact,), next_step=LOOK)


def _expected_count(finding: Finding) -> int:
    """The number of a count that fails: 8, `at least 4`; else 0."""
    digits = str(finding.expected).rpartition(" ")[2]
    is_count = finding.verdict is Verdict.FAIL and finding.subject.kind == "node"
    return int(digits) if is_count and digits.isdigit() else 0


def _of_guests(evidence: Evidence) -> tuple[PciFunction, ...]:
    data, own = evidence[Pci].data, gpu_functions(evidence)
    return tuple(
        function for function in (data.of_kind("gpu") if data else ()) if function not in own
    )


def _missing(evidence: Evidence, address: str, facts: tuple[str, ...], step: str) -> MissingGpu:
    return MissingGpu(bus_id=address, facts=(*facts, *log_facts(evidence, address)), next_step=step)
