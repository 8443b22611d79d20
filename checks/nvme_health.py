"""Every NVMe drive is present, live and healthy by its own health log.

**Why it matters.** A drive that is worn out, has no spare blocks left or lost data slows down, then
turns read-only in the middle of a job. A missing drive makes the scratch array smaller or prevents
its mount. The drive reports it before anyone notices.

**Read from** /sys/class/nvme, the PCI bus, and the drives' SMART / Health Information log by `nvme
smart-log` or `smartctl`, whichever is installed. nodevet reads the log as root, with a deadline,
and only if a baseline asks for this check. Reading it changes nothing on the drive.

**Verdicts.** A drive fails if its controller is not live, if it raises a critical warning, if its
spare blocks are below its own threshold, or if it exceeds a limit of the baseline. Without either
program, or without root, it is unknown. With `if_possible` a node without either program is not
applicable, unless a controller is not live. With `smart: false` the check judges only the kernel's
view. `count` counts drives on PCIe. A drive on the bus without a controller in the kernel fails. It
is unknown if some controller does not report its address, and ignored if it is bound to another
driver (vfio-pci, SPDK). In a virtual machine that cannot read a log the drive is not applicable:
check it on the host. For drives over a network, only the state is judged.

**To fix it** drain the node. `nvme smart-log`, `nvme error-log` and `smartctl -x` show more.
Replace a drive that is worn, out of spares or lost data: find its bay by serial and bus address
(`nvme list`, the BMC). If it is hot, look at fans and airflow. If it is missing or not live, read
the kernel log (`nvme`), then reseat it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    text_aspects,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.expected import Words
from nodevet.checking.named import reads_of
from nodevet.checking.temperatures import DEGREES
from nodevet.evidence.across import is_virtual
from nodevet.evidence.core import NOT_ASKED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.nvme import Nvme, NvmeController, NvmeHealthLog
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
    compare,
    fail,
    not_applicable,
    unknown,
)

WARNINGS = (
    "spare blocks below the threshold",
    "temperature beyond its limits",
    "reliability degraded by media or internal errors",
    "media are read-only",
    "volatile memory backup failed",
    "persistent memory region is read-only",
)
HEALTH = "health"
NO_PROGRAM = "neither nvme nor smartctl is on this node"
MISSING = "a drive is missing: see the kernel log (`nvme`) and `lspci`; reseat it"
NO_DRIVER = "`modprobe nvme`; if that does not help, the kernel log says why the driver gave up"
NOT_LIVE = "the kernel log (`nvme`) says why; `nvme reset` may recover it; if not, reseat it"
REPLACE = "drain the node and replace the drive: its serial and bus address are in the details"
COOL = "look at fans, airflow and the neighbouring drives"
Count = Annotated[int, Meta(ge=0)]
Percent = Annotated[int, Meta(ge=0, le=255)]


class Params(CheckParams):
    """`nvme_health: 8` or `nvme_health: {count: 8, maximum_percentage_used: 80}` or
    `nvme_health: {smart: false, firmware: [EPK9CB5Q, "GDC7*"]}`"""

    bare: ClassVar[str] = "count"

    count: Count | None = None
    """The number of drives on PCIe."""
    smart: bool = True
    """Whether to read the drives' health logs."""
    if_possible: bool = False
    """Whether a node without nvme and smartctl is not applicable instead of unknown."""
    maximum_percentage_used: Percent | None = 100
    """The most used of the vendor's rated endurance; it may be above 100."""
    minimum_spare_percent: Percent | None = None
    """The least spare blocks left; the drive's own threshold is always judged."""
    maximum_media_errors: Count | None = 0
    """The most data errors that the drive could not correct, since the drive was made."""
    maximum_unsafe_shutdowns: Count | None = None
    """The most unsafe shutdowns since the drive was made."""
    maximum_temperature_c: Annotated[int, Meta(ge=1, le=200)] | None = None
    model: Words | None = None
    """The right model, or a list; `*` stands for any text."""
    firmware: Words | None = None
    """The right firmware revision, or a list."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Nvme]
    if section.status == "absent":
        yield without_driver(evidence, section.why)
    elif section.data is None:
        yield unknown(why=f"NVMe: {section.why}")
    elif section.data.controllers is None:
        yield unread(NODE, section.data, "controllers")
    else:
        controllers = section.data.controllers
        findings = [*judge_bus(evidence, controllers, params)]
        for drive in controllers:
            findings += judge_drive(drive, evidence, params)
        yield from findings
        if not findings:
            yield not_applicable(why="the node has no NVMe drive")


def without_driver(evidence: Evidence, why: str) -> Finding:
    """The finding of a node whose kernel has no NVMe driver: whether the bus has such drives."""
    bus = evidence[Pci].data
    if bus is None or bus.functions is None:
        return unknown(why=f"NVMe: {why}")
    drives = [drive.address for drive in bus.of_kind("nvme") if is_for_kernel(drive)]
    if drives:
        return unknown(why=f"{why}; the PCI bus has {', '.join(drives[:8])}")
    return not_applicable(why="the node has no NVMe drive")


def judge_bus(
    evidence: Evidence, controllers: Sequence[NvmeController], params: Params
) -> Iterator[Finding]:
    """Whether each drive on the PCI bus has a controller, and whether there are as many as
    expected."""
    section = evidence[Pci]
    on_pcie = [controller for controller in controllers if controller.transport in (None, "pcie")]
    if section.data is None:
        yield unknown(why=f"PCI: {section.why}")
    elif section.data.functions is None:
        yield unread(NODE, section.data, "functions")
    else:
        drives = section.data.of_kind("nvme")
        addresses = {controller.address for controller in on_pcie}
        nameless = [controller for controller in on_pcie if controller.address is None]
        for drive in drives:
            if drive.address in addresses or not is_for_kernel(drive):
                continue
            subject = Subject(kind="pci", id=drive.address, bus_id=drive.address)
            if nameless and drive.driver:  # one of them may be its controller
                yield unread(subject, nameless[0], "address")
            else:
                yield fail(
                    subject,
                    expected="live",
                    actual="on the PCI bus, without a controller",
                    why="" if drive.driver else "no driver is bound to it",
                    advice=NOT_LIVE if drive.driver else NO_DRIVER,
                )
        strange = addresses - {drive.address for drive in drives}
        if strange:
            counted = f"{len(on_pcie) - len(strange)} of them are on the PCI bus"
            yield unknown(why=f"{len(on_pcie)} controllers, but {counted}")
    unsure = [controller for controller in controllers if controller.transport is None]
    if params.count is not None and unsure:
        yield unread(NODE, unsure[0], "transport")
    elif params.count is not None:
        advice = MISSING if len(on_pcie) < params.count else ""
        expected, actual = {"drives": params.count}, {"drives": len(on_pcie)}
        extra = "correct the baseline, or remove the drive" if len(on_pcie) > params.count else ""
        yield compare(NODE, expected=expected, actual=actual, advice=advice or extra)


def is_for_kernel(function: PciFunction) -> bool:
    """Whether the kernel's own driver has the drive, or should have it."""
    return function.driver in (None, "nvme")


def judge_drive(drive: NvmeController, evidence: Evidence, params: Params) -> Iterator[Finding]:
    subject = subject_of(drive)
    details = details_of(drive)
    aspects = [*text_aspects(drive, model=params.model, firmware=params.firmware)]
    is_dead = drive.state not in (None, "live")
    if drive.state is None:
        aspects.append(unread_aspect(drive, "state"))
    elif drive.state == "live":
        aspects.insert(0, aspect_if("state", True, expected="live", actual="live"))
    else:
        yield fail(subject, expected="live", actual=drive.state, advice=NOT_LIVE, details=details)
    if params.smart and drive.transport in (None, "pcie"):
        if drive.health is not None:
            aspects += log_aspects(drive.health, params)
        elif is_dead:
            pass  # a dead controller does not answer
        elif why := why_exempt(drive, evidence, params):  # without the log it is not ok
            aspects = [aspect for aspect in aspects if aspect.verdict is not Verdict.OK]
            aspects.append(Aspect(Verdict.NOT_APPLICABLE, "health", why=why[:400]))
        else:
            aspects.append(unread_aspect(drive, "health"))
    if is_dead:
        aspects = [aspect for aspect in aspects if aspect.verdict is not Verdict.OK]
    yield from aspect_findings(subject, aspects, details, advice=advice)


def why_exempt(drive: NvmeController, evidence: Evidence, params: Params) -> str:
    """Why a drive needs no health log; empty if it needs one."""
    why = f"health: {drive.why('health')}"
    if is_virtual(evidence):
        return f"a virtual machine: {why}"
    return why if params.if_possible and drive.why("health") == NO_PROGRAM else ""


def subject_of(drive: NvmeController) -> Subject:
    pcie = drive.address if drive.transport == "pcie" else None
    return Subject(kind="nvme", id=drive.name.removeprefix("nvme"), bus_id=pcie)


def details_of(drive: NvmeController) -> Mapping[str, str]:
    texts_shown = {"model": drive.model, "serial": drive.serial, "firmware": drive.firmware}
    return {name: text for name, text in texts_shown.items() if text}


def log_aspects(log: NvmeHealthLog, params: Params) -> Iterator[Aspect]:
    """The aspects of the health log, field by field."""
    if log.critical_warning is None:
        yield unanswered_aspect(log, "critical_warning")
    else:
        raised = warnings(log.critical_warning)
        shown = ", ".join(raised) or "none"
        yield aspect_if("critical warning", not raised, expected="none", actual=shown)
    yield spare(log, params)
    for name, field, most, unit in (
        ("endurance used", "percentage_used", params.maximum_percentage_used, "%"),
        ("media errors", "media_errors", params.maximum_media_errors, ""),
        ("unsafe shutdowns", "unsafe_shutdowns", params.maximum_unsafe_shutdowns, ""),
        ("temperature", "temperature_c", params.maximum_temperature_c, " °C"),
    ):
        actual: int | None = getattr(log, field)
        if most is None:
            continue
        if actual is None or (actual < 0 if field != "temperature_c" else actual not in DEGREES):
            yield unanswered_aspect(log, field)
        else:
            expected = f"at most {most}{unit}" if most else "none"
            yield aspect_if(name, actual <= most, expected=expected, actual=f"{actual}{unit}")


def spare(log: NvmeHealthLog, params: Params) -> Aspect:
    for field in ("spare_percent", "spare_threshold_percent"):
        value = getattr(log, field)
        if value is None or not 0 <= value <= 255:
            return unanswered_aspect(log, field)
    least = max(log.spare_threshold_percent or 0, params.minimum_spare_percent or 0)
    left = log.spare_percent or 0
    expected, actual = f"at least {least}%", f"{left}%"
    return aspect_if("spare blocks", left >= least, expected=expected, actual=actual)


def unanswered_aspect(log: NvmeHealthLog, field: str) -> Aspect:
    value = getattr(log, field)
    return unknown_aspect(field, f"{field}: {log.why(field) if value is None else value}")


def warnings(bits: int) -> list[str]:
    """
    >>> warnings(0), warnings(0b1001)[1], warnings(64)
    ([], 'media are read-only', ['bit 6'])
    """
    named = [text for bit, text in enumerate(WARNINGS) if bits >> bit & 1]
    others = [bit for bit in range(len(WARNINGS), 16) if bits >> bit & 1]
    return named + [f"bit {bit}" for bit in others] or (["unreadable"] if bits < 0 else [])


def advice(bad: list[str]) -> str:
    if bad == ["temperature"]:
        return COOL
    if set(bad) <= {"model", "firmware"}:
        return "`nvme fw-download` and `nvme fw-commit` on a drained node, or replace the drive"
    if bad == ["unsafe shutdowns"]:
        return (
            "the node loses power, or someone switches it off without a shutdown: see the BMC's "
            "event log"
        )
    return REPLACE


def learn(evidence: Evidence) -> Value:
    data = evidence[Nvme].data
    if data is None or data.controllers is None:
        return None
    drives = [controller for controller in data.controllers if controller.transport == "pcie"]
    fields: dict[str, Value] = {"count": len(drives)}
    if any(drive.health is None and drive.why(HEALTH) != NOT_ASKED for drive in drives):
        fields["smart"] = False
    return fields if drives else None


CHECK = Check(
    params=Params,
    area=Area.STORAGE,
    reads=(
        "host.virtualization",
        *reads_of("nvme.controllers[]", "address", "firmware"),
        *reads_of("nvme.controllers[].health", "critical_warning", "media_errors"),
        *reads_of("nvme.controllers[].health", "percentage_used", "spare_percent"),
        *reads_of("nvme.controllers[].health", "spare_threshold_percent", "temperature_c"),
        "nvme.controllers[].health.unsafe_shutdowns",
        *reads_of("nvme.controllers[]", "model", "name", "state", "transport"),
        *reads_of("pci.functions[]", "address", "class_code", "driver"),
    ),
    judge=judge,
    unasked="for servers, where nodevet is root: on a workstation write nvme_health: {}",
    learn=learn,
    asks=lambda params: {"nvme": (HEALTH,) if params.smart else ()},
    actions={REPLACE: NeededAction.RMA},
)
