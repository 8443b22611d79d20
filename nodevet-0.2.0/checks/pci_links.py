"""The PCIe links of NICs and NVMe drives run at their full rate and width.

**Why it matters.** A NIC with half its lanes has half its rate, and a drive at an older generation
feeds its GPUs too slowly; both work without an error.

**Read from** `/sys/bus/pci/devices/*/{current,max}_link_{speed,width}`, of the device and of the
port above it; with root also the port's target speed, from `config` (LnkCtl2).

**Verdicts.** A link must run at the highest rate that both device and port support; less fails. If
the port supports less than the device, or has a lower target speed, the link is ok, and the finding
names the port; with `limited: false` it fails. NICs are Ethernet, InfiniBand and Omni-Path
adapters, by their PCI class; Wi-Fi cards do not count. `kinds` lists the devices to judge, `ignore`
those to skip: vendor and device id (14e4:165f, a management NIC), or address. The ports of one card
count as one device. Devices without a PCIe link are not applicable. Virtual machines are not
applicable, because their ports are the hypervisor's. Virtual functions are skipped.

**To fix it** reboot once, which trains the link again; then reseat the card or the drive, and check
its cable, its riser and the slot's bifurcation in the BIOS.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.checking.pci_path import cards, without_real_bus
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # GT/s per lane
WIDTHS = (1, 2, 4, 8, 12, 16, 32)  # lanes
FIELDS = ("link_gts", "link_width", "link_gts_max", "link_width_max")
RETRAIN = (
    "reboot once, which retrains the link; if it stays slow, power the node off and reseat the "
    "card or drive, then its riser, cable or backplane"
)
NARROW = (
    "the port supports no more, or is set to less: use a faster slot, and check its bifurcation "
    "and link speed in the BIOS"
)


Device = Annotated[str, Meta(title="an id or PCI address", pattern=r"^[0-9a-f:.]{9,15}$")]


class Params(CheckParams):
    """`pci_links: {}` or `pci_links: {kinds: [nic], ignore: ["14e4:165f", "0000:01:00.0"]}`"""

    kinds: tuple[Literal["nic", "nvme"], ...] = ("nic", "nvme")
    ignore: tuple[Device, ...] = ()
    """Devices to skip, by id or address."""
    limited: bool = True
    """Whether the port may limit a link."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    virtual = without_real_bus(evidence)
    section = evidence[Pci]
    functions = section.data.functions if section.data else None
    if virtual is not None:
        yield virtual
    elif functions is None:
        yield unknown(why=f"PCI: {section.data.why('functions') if section.data else section.why}")
    else:
        yield from judge_all(section.data.by_address if section.data else {}, params)


Functions = Mapping[str, PciFunction]
Rate = tuple[float, int]  # GT/s per lane, lanes


def judge_all(functions: Functions, params: Params) -> Iterator[Finding]:
    for function in functions.values():
        if function.class_code is None:
            yield unknown(why=f"{function.address}: class_code: {function.why('class_code')}")
    devices = [function for function in functions.values() if function.kind in params.kinds]
    judged = [
        device for device in cards(devices) if not is_ignored(device, params) and not device.physfn
    ]
    for device in judged:
        yield judge_device(device, functions, params)
    if not judged:
        yield not_applicable(why=f"no {' or '.join(params.kinds)} to judge")


def is_ignored(function: PciFunction, params: Params) -> bool:
    return function.id in params.ignore or function.address in params.ignore


def judge_device(device: PciFunction, functions: Functions, params: Params) -> Finding:
    subject = Subject(kind=device.kind, id=device.address, bus_id=device.address)
    if device.physfn is None:
        return unread(subject, device, "physfn")
    if all(has_no_link(device, field) for field in FIELDS):
        if shows_no_links(functions):
            return unknown(subject, why="this kernel shows no PCIe links: it is older than 4.13")
        if other := with_link(device, functions):
            why = f"no PCIe link, but {other} of the same model has one"
            return unknown(subject, why=f"{why}: {device.why('link_gts')}")
        return not_applicable(subject, why="it has no PCIe link of its own")
    own = rate(device, "")
    most = rate(device, "_max")
    if isinstance(own, str) or isinstance(most, str):
        return unknown(subject, why=own if isinstance(own, str) else str(most))
    at_best = min(own[0], most[0]), min(own[1], most[1])
    if at_best == most:
        return ok(subject, expected=link_text(most), actual=link_text(own))
    port = port_above(device, functions)
    if isinstance(port, str):
        return unknown(subject, why=port)
    limit = most if port is None else rate(port, "_max")
    if isinstance(limit, str):
        return unknown(subject, why=limit)
    expected = min(most[0], limit[0]), min(most[1], limit[1])
    name = port.address if port else ""
    why = f"limited by port {name}, whose maximum is {link_text(limit)}" if expected != most else ""
    target = port.link_gts_target if port else None
    if target in GENERATIONS and target < expected[0]:
        expected = target, expected[1]
        why = f"limited by port {name}, whose target speed is set to Gen{GENERATIONS[target]}"
    if own[0] < expected[0] or own[1] < expected[1]:
        allowed = expected if params.limited else most
        return fail(
            subject, expected=link_text(allowed), actual=link_text(own), why=why, advice=RETRAIN
        )
    if not params.limited:
        return fail(
            subject, expected=link_text(most), actual=link_text(own), why=why, advice=NARROW
        )
    why = f"{why}; the device could do {link_text(most)}"
    return ok(subject, expected=link_text(expected), actual=link_text(own), why=why)


def with_link(device: PciFunction, functions: Functions) -> str:
    """The address of a device of the same model that has a link; empty if there is none."""
    return next(
        (
            function.address
            for function in functions.values()
            if function.id == device.id and not function.physfn and function.link_gts is not None
        ),
        "",
    )


def has_no_link(device: PciFunction, field: str) -> bool:
    reason = device.errors.get(field, "")
    return getattr(device, field) is None and reason.startswith(("ENOENT", "the kernel says"))


def shows_no_links(functions: Functions) -> bool:
    """Whether no function has these files: Linux has them since 4.13."""
    return all(
        getattr(function, field) is None and function.errors.get(field, "").startswith("ENOENT")
        for function in functions.values()
        for field in FIELDS
    )


def rate(function: PciFunction, which: str) -> Rate | str:
    """The rate of a link now, or its maximum (`_max`); or why it is unknown."""
    gts = getattr(function, f"link_gts{which}")
    width = getattr(function, f"link_width{which}")
    for field, value in ((f"link_gts{which}", gts), (f"link_width{which}", width)):
        if value is None:
            return f"{function.address}: {field}: {function.why(field)}"
    if gts not in GENERATIONS or width not in WIDTHS:
        return f"{function.address}: not a valid PCIe link: {gts:g} GT/s x{width}"
    return gts, width


def link_text(rate: Rate) -> str:
    return f"Gen{GENERATIONS[rate[0]]} x{rate[1]}"


def port_above(device: PciFunction, functions: Functions) -> PciFunction | str | None:
    """The port at the other end of the link; None if there is none; or why it is unknown."""
    if device.upstream is None or "upstream" in device.errors:
        return f"upstream: {device.why('upstream')}"
    if not device.upstream:
        return None
    return functions.get(device.upstream[0]) or "the port above it is not in the evidence"


def learn(evidence: Evidence) -> Value:
    """Ignore models that never run at full rate, such as management NICs."""
    findings = list(judge(evidence, Params()))
    if any(finding.subject == NODE for finding in findings):
        return None
    functions = data.by_address if (data := evidence[Pci].data) else {}
    verdicts_by_id: dict[str, set[Verdict]] = {}
    for finding in findings:
        verdicts_by_id.setdefault(functions[finding.subject.id].id, set()).add(finding.verdict)
    slow = sorted(name for name, verdicts in verdicts_by_id.items() if verdicts == {Verdict.FAIL})
    return {"ignore": slow} if slow else {}


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        "host.virtualization",
        *reads_of("pci.functions[]", "address", "class_code", "device", "link_gts"),
        *reads_of("pci.functions[]", "link_gts_max", "link_gts_target", "link_width"),
        *reads_of("pci.functions[]", "link_width_max", "physfn", "upstream[]", "vendor"),
    ),
    judge=judge,
    unasked="for servers and workstations: `generic` has only checks for any node",
    learn=learn,
    actions={RETRAIN: NeededAction.REBOOT},
)
