"""The node has the expected NVSwitches, each with its driver and the expected PCIe link.

**Why it matters.** The GPUs of an HGX board communicate through its NVSwitches. If one is missing
or has no driver, the fabric manager does not start and no CUDA program runs, or all GPUs have fewer
links.

**Read from** the PCI bus (/sys/bus/pci/devices, NVIDIA functions of class 0680: their driver,
revision and link) and `/dev/nvidia-nvswitch<N>`.

**Verdicts.** With `count`, any other number of NVSwitches fails. An NVSwitch fails if it has no
driver nvidia-nvswitch, if it no longer answers (its revision reads ff), or if its link differs from
the baseline's or from that of most switches; their links may by design be below the maximum. If
there are device nodes, their number must match the bus. A node without NVSwitches on its bus is not
applicable if `count` is not set, and so is a virtual machine, because the host has the NVSwitches.
Blackwell's NVSwitches are not on the PCI bus: see `fabric`.

**To fix it** look for SXid and PCIe errors in the kernel log; drain the node and power cycle it
(`ipmitool chassis power cycle`), because no GPU reset reaches a switch. If the switch stays
missing, have the baseboard replaced.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import of_section, reads_of
from nodevet.checking.one_value import ok_if
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.modules import Modules
from nodevet.evidence.pci import UNBOUND, Pci, PciFunction
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    compare,
    fail,
    not_applicable,
    ok,
    unknown,
)

DRIVER = "nvidia-nvswitch"
NODE = re.compile(r"/dev/nvidia-nvswitch[0-9]{1,3}")
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
BARE = ("none", "container")

POWER = (
    "look for SXid and PCIe errors in `dmesg`, drain the node and power it off and on; if the "
    "switch stays missing or its link stays narrow, have the baseboard replaced"
)
BIND = (
    "`dmesg | grep -i nvswitch` says why the driver is not bound; reboot with the nvidia module "
    "of the fabric manager's version, and check that no other driver (vfio-pci) is bound"
)
APART = (
    "a switch dropped off the bus after boot, or its device node was not created: look for SXid "
    "in `dmesg`, restart nvidia-fabricmanager on a drained node; if that does not help, power "
    "cycle"
)
MORE = (
    "the node has more NVSwitches than the baseline: correct the count or choose another baseline"
)

Link = tuple[int, int]  # generation, width


class Params(CheckParams):
    """`nvswitch: 4` or `nvswitch: {count: 4, generation: 4, width: 2}` or `nvswitch: {}`"""

    bare: ClassVar[str] = "count"

    count: Annotated[int, Meta(ge=0, le=256)] | None = None
    generation: Annotated[int, Meta(ge=1, le=6)] | None = None
    """The generation of each switch's PCIe link; if not set, that of most of them."""
    width: Annotated[int, Meta(ge=1, le=32)] | None = None


@of_section(Pci, "PCI")
def judge(pci: Pci, evidence: Evidence, params: Params) -> Iterator[Finding]:
    if pci.functions is None:
        yield unknown(why=f"functions: {pci.why('functions')}")
        return
    doubtful = next((function for function in pci.functions if may_be_switch(function)), None)
    if doubtful:
        field = "vendor" if doubtful.vendor is None else "class_code"
        yield unknown(why=f"{doubtful.address}: {field}: {doubtful.why(field)}")
        return
    switches = pci.of_kind("nvswitch")
    if not switches and not params.count:
        yield not_applicable(why="the node has no NVSwitch on its PCI bus")
        return
    if params.count is not None:
        yield judge_count(evidence, params.count, len(switches))
    yield from judge_nodes(evidence, len(switches))
    usual = Counter(link for switch in switches if isinstance(link := link_of(switch), tuple))
    for switch in switches:
        yield from judge_switch(switch, params, usual)


def may_be_switch(function: PciFunction) -> bool:
    """Whether the function may be a switch because its vendor or class was not read."""
    code = function.class_code
    if function.vendor is not None and code is not None:
        return False
    return function.vendor in (None, "10de") and (code is None or code[:4] == "0680")


def judge_count(evidence: Evidence, count: int, present: int) -> Finding:
    if present or not count:
        advice = "" if present == count else MORE if present > count else POWER
        return compare(Subject(), expected=count, actual=present, advice=advice)
    host = evidence[HostInfo]
    virtualization = host.data.virtualization if host.data else None
    if virtualization is None:
        why = host.data.why("virtualization") if host.data else host.why
        return unknown(why=f"no NVSwitch on the bus; virtualization: {why}")
    if virtualization not in BARE:
        return not_applicable(why="a virtual machine: its host has the NVSwitches")
    return fail(expected=count, actual=0, advice=POWER)


def judge_nodes(evidence: Evidence, present: int) -> Iterator[Finding]:
    """Compare device nodes with the bus: they are created when the fabric manager starts, and stay
    if a switch drops off the bus."""
    section = evidence[Modules]
    if section.data is None:
        yield unknown(why=f"/dev: {section.why}")
        return
    if section.data.device_nodes is None:
        yield unknown(why=f"device_nodes: {section.data.why('device_nodes')}")
        return
    nodes = [node for node in section.data.device_nodes if NODE.fullmatch(node.path)]
    if nodes and len(nodes) != present:
        actual = {"PCI bus": present, "/dev": len(nodes)}
        yield fail(expected="as many in /dev as on the bus", actual=actual, advice=APART)


def link_of(function: PciFunction) -> Link | str:
    """Generation and width; or why they are unknown."""
    for field in ("link_gts", "link_width"):
        if getattr(function, field) is None:
            return f"{field}: {function.why(field)}"
    generation = GENERATIONS.get(function.link_gts or 0)
    if generation is None or function.link_width not in WIDTHS:
        return f"not a valid PCIe link: {function.link_gts:g} GT/s x{function.link_width}"
    return generation, function.link_width or 0


def judge_switch(function: PciFunction, params: Params, usual: Counter[Link]) -> Iterator[Finding]:
    """The findings about its driver and its link, if it is on the bus."""
    subject = Subject(kind="pci", id=function.address, bus_id=function.address)
    if function.revision is None:
        yield unread(subject, function, "revision")
    elif function.revision == "ff":
        yield fail(subject, expected="on the PCI bus", actual="off the bus", advice=POWER)
    else:
        driver = judge_driver(function, subject)
        link = judge_link(function, subject, params, usual)
        yield from each_fact((driver, link))


def judge_driver(function: PciFunction, subject: Subject) -> Finding:
    if function.driver is None and not function.is_unbound:
        return unread(subject, function, "driver")
    if function.driver == DRIVER:
        return ok(subject, expected=DRIVER, actual=DRIVER)
    return fail(subject, expected=DRIVER, actual=function.driver or UNBOUND, advice=BIND)


def judge_link(
    function: PciFunction, subject: Subject, params: Params, usual: Counter[Link]
) -> Finding:
    link = link_of(function)
    if isinstance(link, str):
        return unknown(subject, why=link)
    if None in (params.generation, params.width):
        if usual.total() == 1:
            why = f"{link_text(link)}: no other NVSwitch to compare it with"
            return not_applicable(subject, why=why)
        if list(usual.values()).count(max(usual.values())) > 1:
            return fail(subject, expected="all links alike", actual=link_text(link), advice=POWER)
    common = usual.most_common(1)[0][0]
    expected = (params.generation or common[0], params.width or common[1])
    right = link == expected
    return ok_if(right, subject, expected=link_text(expected), actual=link_text(link), advice=POWER)


def link_text(link: Link) -> str:
    return f"Gen{link[0]} x{link[1]}"


def learn(evidence: Evidence) -> dict[str, int] | None:
    switches = data.of_kind("nvswitch") if (data := evidence[Pci].data) else ()
    links = {link_of(switch) for switch in switches}
    params = {"count": len(switches)}
    if len(links) == 1 and isinstance(link := links.pop(), tuple):
        params |= {"generation": link[0], "width": link[1]}
    return params if switches else None


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        "host.virtualization",
        "modules.device_nodes[].path",
        *reads_of("pci.functions[]", "class_code", "driver", "link_gts", "link_width", "revision"),
        "pci.functions[].vendor",
    ),
    judge=judge,
    unasked="for HGX boards whose NVSwitches are on the PCI bus: Blackwell's are not",
    learn=learn,
    actions={POWER: NeededAction.POWER_CYCLE},
)
