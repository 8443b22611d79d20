"""No PCIe device has more link errors than the baseline allows.

**Why it matters.** Corrected errors are retried silently; a rising count points to a loose cable,
riser or retimer, days before a link loses lanes or a GPU falls off the bus. An uncorrected error
lost data, and a fatal one the link.

**Read from** the counters of Advanced Error Reporting,
`/sys/bus/pci/devices/*/aer_dev_{correctable,nonfatal,fatal}`, of every NVIDIA function, NIC, NVMe
and the ports above them; who handles errors, `/sys/bus/pci_express/drivers/aer` and
`/sys/bus/platform/drivers/GHES`; and the kernel log since boot: AER, DPC and what the firmware
reports (APEI).

**Verdicts.** Uncorrected errors fail, counted or logged. Corrected ones are judged if the baseline
gives the most that is allowed, in all or for each hour since boot; the first hour counts whole.
With `--sample` those of an hour fail too if more came meanwhile than chance allows, and a sample
that is long enough to tell stands in for the mean since boot; a counter that went back is unknown.
With `--since` corrected errors of an hour are judged by what came since the last look in the same
way; uncorrected ones fail only if one of their counters or the log has one since, and the log must
hold all that came since. A function without counters has no such reporting. Counters that stay 0
are believed only below a port that tells the kernel: if the firmware handles errors first, the log
is judged, which has what APEI passes on, and corrected errors are counted by its lines, two for
one; beyond those, they are not applicable. The same holds of kernels that count nothing, before
4.19. If neither the kernel nor APEI handles errors, and in a virtual machine, whose errors are its
host's, it is not applicable. The node is ok only if all counters were read, and the log has no gap:
it says since when if its beginning is gone, as `xid` does. Captured files without a log are not
applicable. Some firmware has unsupported requests counted while it looks for devices: allow what a
healthy node of the kind has at boot, or leave this check out.

**To fix it** follow the advice, which depends on the kind of error: physical-layer errors need
hands (reseat, riser, cable, retimer), protocol errors need firmware or driver updates.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from nodevet.evidence.across import located, logged
from nodevet.evidence.document import Evidence, once
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel_log import KernelEvent, KernelLog, line_of
from nodevet.evidence.last_look import SEEN_LINES, Seen, covered, differ, seen_lines
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.evidence.rates import HOUR, Growth, Sample, growth, sampled, since_look
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

NO_COUNTER = "ENOENT"  # of a function, or a kernel, without such reporting
PHYSICAL = frozenset({"RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "DLP", "SDES"})
"""Kinds that bad contact and weak signals cause, as the kernel names them, aer.c."""
FIELDS = ("correctable", "nonfatal", "fatal")
UNCORRECTED = FIELDS[1:]
UNCOUNTED = (None, None, None)
LINES_EACH = 2  # of the log, at most, for one corrected error

Most = Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`pcie_errors: {}` or `pcie_errors: {corrected: 100, corrected_per_hour: 10}`"""

    corrected: Most | None = None
    """The most corrected errors of a function since boot; without it they are not judged."""
    corrected_per_hour: Annotated[float, Meta(ge=0)] | None = None
    """The same, for each hour: since boot, and while they are sampled."""
    nonfatal: Most = 0
    """The most uncorrected errors of a function that were not fatal, by its counter."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Pci]
    if section.data is None:
        yield unknown(why=f"PCI: {section.why}")
        return
    if section.data.functions is None:
        yield unknown(why=f"functions: {section.data.why('functions')}")
        return
    if not section.data.functions:
        yield unknown(why="no NVIDIA function, NIC or NVMe was found on the PCI bus")
        return
    hours, doubt = uptime(evidence, params)
    recent, sample_doubt = sample_of(evidence, params)
    gpus = {gpu.bus_id: gpu for gpu in located(evidence)}
    logged = by_address(evidence)
    seen, same = seen_lines(evidence), same_counts(evidence)
    ports = frozenset(section.data.aer_ports or ())
    below = partners(section.data.functions, gpus)
    counted: list[PciFunction] = []
    silent: list[PciFunction] = []
    bad, old = 0, []
    doubts = [doubt, sample_doubt, log_doubt(evidence), short(section.data.functions)]
    doubts += unserved(section.data)
    for function in section.data.functions:
        events = logged.pop(function.address, [])
        tells = function.address in ports or not ports.isdisjoint(function.upstream or ())
        grown = recent.get(function.address) if recent and tells else None
        known = function.address in same and not serious_of(new_of(events, seen))
        if known and (told := uncorrected(function, events)):
            old.append(told)
        above = excess(function, events, params, hours, tells, grown, known=known)
        if above:
            bad += 1
            found = fault(function, gpus.get(function.address), *above)
            device = "gpu_lost" if function.revision == "ff" else below.get(function.address)
            yield msgspec.structs.replace(found, cause=device) if device else found
        doubts += unread(function)
        if recent and tells and function.aer.correctable is not None:
            doubts += unsampled(function, grown)
        if not above and counts_of(function) != UNCOUNTED:
            (counted if tells else silent).append(function)
    for found in elsewhere(logged, seen):
        bad += 1
        yield found
    told = "; ".join(dict.fromkeys(filter(None, doubts)))
    if told:
        yield unknown(why=told)
    elif bad:
        return
    elif evidence[KernelLog].status == "absent":
        yield not_applicable(why=f"no errors were counted, and {evidence[KernelLog].why}")
    elif counted and not silent:
        yield within(evidence, old)
    else:
        yield from by_log(evidence, params, len(counted), len(silent), old)


def elsewhere(logged: Mapping[str, Sequence[KernelEvent]], seen: Seen | None) -> Iterator[Finding]:
    """What the log says of devices that are not on the bus, or not named."""
    for address, events in sorted(logged.items()):
        serious = serious_of(events if address else new_of(events, seen))
        if serious:
            yield fail(
                Subject(kind="pci", id=address, bus_id=address) if address else NODE,
                expected={"logged": "none uncorrected"},
                actual={"logged": lines(serious)},
                advice=advice("the device", {}, True),
                details=logs(address, line_of(serious)),
            )


def within(evidence: Evidence, old: Sequence[str], why: str = "") -> Finding:
    """The ok finding; `why`: on what it rests, beside the time that the log covers. `old`: the
    uncorrected errors that were there at the last look."""
    seen = seen_lines(evidence)
    before = seen.before(old) if seen else ""
    told = "; ".join(filter(None, (why, before or since_of(evidence))))
    return ok(expected="within limits", actual="within limits", why=told)


def new_of(events: Sequence[KernelEvent], seen: Seen | None) -> list[KernelEvent]:
    return [event for event in events if not (seen and seen.has(event))]


def serious_of(events: Sequence[KernelEvent]) -> list[KernelEvent]:
    return [event for event in events if event.severity in UNCORRECTED]


def uncorrected(function: PciFunction, events: Sequence[KernelEvent]) -> str:
    """As `0000:5d:00.0 fatal 1, logged ×2`; empty if there are none."""
    counts = {name: getattr(function.aer, name) for name in UNCORRECTED}
    told = [f"{name} {count}" for name, count in counts.items() if count]
    serious = serious_of(events)
    told += [f"logged {lines(serious)}"] if serious else []
    return f"{function.address} {', '.join(told)}" if told else ""


@once
def same_counts(evidence: Evidence) -> frozenset[str]:
    """The functions that had as many uncorrected errors at the last look, by address; none if the
    log does not hold all that came since: it tells of one that came after its device was reset."""
    sample, now = sampled(evidence, Pci), evidence[Pci].data
    if sample is None or not sample.look or sample.data is None or seen_lines(evidence) is None:
        return frozenset()
    then = sample.data.by_address
    return frozenset(
        each.address
        for each in (now.functions if now else None) or ()
        if (one := then.get(each.address)) is not None
        and (one.vendor, one.device) == (each.vendor, each.device)
        and all(getattr(one.aer, name) == getattr(each.aer, name) for name in UNCORRECTED)
    )


def by_log(
    evidence: Evidence, params: Params, counted: int, silent: int, old: Sequence[str]
) -> Iterator[Finding]:
    """What the log says, where counters are missing or never raised. `counted`, `silent`:
    of how many functions the counters are believed, and are not."""
    data, host = evidence[Pci].data, evidence[HostInfo].data
    sources = data.firmware_sources if data else None
    if host is None or not host.virtualization:
        yield unknown(why=f"virtualization: {host.why('virtualization') if host else 'no host'}")
        return
    if host.virtualization not in ("none", "container"):
        yield not_applicable(why="in a virtual machine; PCIe errors are reported to its host")
        return
    if data and data.aer_ports and not silent:
        why = "no function here counts its errors: only the kernel log is judged"
    elif sources is None:
        yield unknown(why=f"firmware_sources: {data.why('firmware_sources') if data else ''}")
        return
    elif sources > 0:
        where = f"firmware-first, and the counters of {silent} functions are not believed"
        why = f"{where}: what the firmware passes on to the kernel's log is judged"
    else:
        if counted:
            yield within(evidence, old)
        what = f"errors of {silent} functions" if counted else "PCIe errors here"
        yield not_applicable(
            why=f"neither the kernel nor APEI handles {what}: the BMC's event log may have them"
        )
        return
    yield within(evidence, old, why)
    if (params.corrected, params.corrected_per_hour) != (None, None):
        yield not_applicable(why=f"corrected errors are not counted; {why}")


def unserved(data: Pci) -> Iterator[str]:
    """Root ports that count errors and are not among those that tell the kernel of them, while
    others are: of a host bridge the firmware keeps all of them or none."""
    if data.aer_ports is None:
        yield f"aer_ports: {data.why('aer_ports')}"
    served = frozenset(data.aer_ports or ())
    domains = {domain_of(address) for address in served}
    for address in sorted({each.upstream[-1] for each in data.functions or () if each.upstream}):
        port = data.by_address.get(address)
        counts = port is not None and counts_of(port) != UNCOUNTED
        if counts and address not in served and domain_of(address) in domains:
            yield f"port {address} counts errors and is not in aer_ports, which has others"


def domain_of(address: str) -> str:
    """Of a PCI address.

    >>> domain_of("0000:17:01.0")
    '0000'
    """
    return address.partition(":")[0]


def short(functions: Sequence[PciFunction]) -> str:
    """Which ports are above a function, and not among those that were read."""
    untold = [function for function in functions if function.upstream is None]
    if untold:
        return f"{untold[0].address}: upstream: {untold[0].why('upstream')}"
    named = {port for function in functions for port in function.upstream or ()}
    left = sorted(named - {function.address for function in functions})
    if not left:
        return ""
    there = len(functions) + len(left)
    return f"{len(functions)} of {there} PCI functions were read: not {', '.join(left[:8])}"


def uptime(evidence: Evidence, params: Params) -> tuple[float | None, str]:
    """Hours since boot, at least one; or why they cannot be told, where they are needed."""
    if params.corrected_per_hour is None:
        return None, ""
    host = evidence[HostInfo]
    if host.data is None:
        return None, f"host: {host.why}"
    if host.data.uptime_s is None or host.data.uptime_s < 0:
        return None, f"uptime_s: {host.data.why('uptime_s')}"
    return max(1.0, host.data.uptime_s / HOUR), ""


def sample_of(evidence: Evidence, params: Params) -> tuple[Mapping[str, Growth], str]:
    """What each function's counter grew by, by address; or why that is not known. Empty without an
    earlier reading, or a limit for it."""
    sample = sampled(evidence, Pci) if params.corrected_per_hour is not None else None
    if sample is None:
        return {}, ""
    if sample.data is None:
        return {}, f"sample of PCI: {sample.why}"
    if not sample.data.functions:
        return {}, f"sample of PCI: functions: {sample.data.why('functions')}"
    now = evidence[Pci].data
    if sample.look:
        return since_last_look(sample, now), ""
    before = {each.address: each.aer.correctable for each in sample.data.functions}
    listed = now.functions if now else None
    return {
        each.address: growth(before.get(each.address), each.aer.correctable, sample.seconds)
        for each in listed or ()
    }, ""


def since_last_look(sample: Sample[Pci], now: Pci | None) -> Mapping[str, Growth]:
    """What corrected errors came since the last look, of the functions that were there then."""
    found = {}
    for each in (now.functions if now else None) or ():
        then = sample.data.by_address.get(each.address) if sample.data else None
        if then is None or differ((then.vendor, each.vendor), (then.device, each.device)):
            continue
        pairs = [(getattr(then.aer, name), getattr(each.aer, name)) for name in FIELDS]
        again = any(None not in pair and pair[1] < pair[0] for pair in pairs)
        grown = since_look(*pairs[0], sample.seconds, again=again)
        if grown is not None:
            found[each.address] = grown
    return found


def unsampled(function: PciFunction, grown: Growth | None) -> Iterator[str]:
    if grown is not None and grown.by is None:
        yield f"corrected errors of {function.address}: {grown.why}"


def log_doubt(evidence: Evidence) -> str:
    """Why the kernel log may hold errors that were not seen; nothing without a log to read."""
    log = logged(evidence)
    if isinstance(log, Finding):
        return "" if log.verdict is Verdict.NOT_APPLICABLE else log.why
    seen = seen_lines(evidence)
    untold = [each for each in new_of(log.events or (), seen)
              if each.kind == "aer" and not each.severity]  # fmt: skip
    if untold:
        return f"a line without a severity: {line_of(untold)}"
    return covered(evidence, log)[0]


def since_of(evidence: Evidence) -> str:
    """Since when the log tells, where it begins after boot."""
    log = evidence[KernelLog].data
    return covered(evidence, log)[1] if log else ""


def by_address(evidence: Evidence) -> dict[str, list[KernelEvent]]:
    log = evidence[KernelLog].data
    found: dict[str, list[KernelEvent]] = {}
    for event in (log.events if log else None) or ():
        if event.kind == "aer":
            found.setdefault(event.bus_id or "", []).append(event)
    return found


def excess(
    function: PciFunction,
    events: Sequence[KernelEvent],
    params: Params,
    hours: float | None,
    tells: bool,
    grown: Growth | None,
    *,
    known: bool,
) -> tuple[dict[str, object], dict[str, object], str] | None:
    """What is wanted, what is there, and a line of the log, where a function had too many.

    `tells`: whether its counters are raised; else corrected errors are counted by lines. `grown`:
    what an earlier reading says, if there is one. `known`: whether all of its uncorrected errors
    were there at the last look."""
    if not events and not any(counts_of(function)):
        return None
    aer = function.aer
    expected: dict[str, object] = {}
    actual: dict[str, object] = {}

    def take(name: str, most: float, count: float | None) -> None:
        if count is not None and count > most:
            expected[name], actual[name] = f"at most {most:g}", count

    take("fatal", 0, None if known else aer.fatal)
    take("nonfatal", params.nonfatal, None if known else aer.nonfatal)
    judged = params.nonfatal > 0 and aer.nonfatal is not None  # by the counter, which tells more
    serious = [
        event
        for event in (() if known else events)
        if event.severity == "fatal" or (event.severity == "nonfatal" and not judged)
    ]
    if serious and not actual:
        expected["logged"], actual["logged"] = "none uncorrected", lines(serious)
    corrected = aer.correctable or 0
    if not tells or aer.correctable is None:
        logged = sum(event.count or 0 for event in events if event.severity == "corrected")
        corrected = max(corrected, logged // LINES_EACH)
    if params.corrected is not None:
        take("corrected", params.corrected, corrected)
    most = params.corrected_per_hour
    if most is not None and hours:
        now = grown.is_above(most) if grown else None
        if grown and now:
            expected["corrected per hour"] = f"at most {most:g}"
            actual["corrected per hour"] = grown.text
        elif now is None:
            take("corrected per hour", most, round(corrected / hours, 1))
    return (expected, actual, line_of(serious or events)) if actual else None


def counts_of(function: PciFunction) -> tuple[int | None, int | None, int | None]:
    """In the order of FIELDS."""
    return function.aer.correctable, function.aer.nonfatal, function.aer.fatal


def unread(function: PciFunction) -> Iterator[str]:
    counts = counts_of(function)
    if all(count is not None and count >= 0 for count in counts):
        return
    for field, count in zip(FIELDS, counts, strict=True):
        if count is None and function.aer.errors.get(field) != NO_COUNTER:
            yield f"aer {field}: {function.aer.why(field)}"
        elif count is not None and count < 0:
            yield f"aer {field}: {count} is not a valid count"


def partners(functions: Sequence[PciFunction], gpus: Mapping[str | None, Gpu]) -> Mapping[str, str]:
    """By the address of a port the finding of the device at the other end of its link: both ends
    count the errors of one link."""
    found: dict[str, str] = {}
    for function in functions:
        if function.upstream and function.kind != "port":
            gpu = gpus.get(function.address)
            label = subject_of(gpu).label if gpu else f"pci {function.address}"
            found.setdefault(function.upstream[0], f"pcie_errors {label}")
    return found


def fault(
    function: PciFunction,
    gpu: Gpu | None,
    expected: Mapping[str, object],
    actual: Mapping[str, object],
    line: str,
) -> Finding:
    address = function.address
    subject = subject_of(gpu) if gpu else Subject(kind="pci", id=address, bus_id=address)
    kinds = {kind: count for kind, count in function.aer.kinds.items() if count > 0}
    shown = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    lost = any(name in actual for name in ("fatal", "nonfatal", "logged"))
    return fail(
        subject,
        expected=expected,
        actual=actual,
        why=shown,
        advice=advice("the GPU" if gpu else "the device", kinds, lost),
        details={**(board(gpu) if gpu else {}), **logs(address, line)},
    )


def logs(address: str, line: str) -> dict[str, str]:
    told = {"bus id": address, "kernel log": line}
    return {word: text for word, text in told.items() if text}


def advice(named: str, kinds: Mapping[str, int], lost: bool) -> str:
    """`lost`: whether errors were not corrected."""
    first = "drain the node, run nvidia-bug-report.sh and reboot; " if lost else ""
    if kinds and not PHYSICAL & set(kinds):
        return (
            f"{first}these are protocol errors, not signal errors: update firmware, BIOS and "
            f"driver; if only {named} has them, in other nodes too, RMA it"
        )
    return (
        f"{first}power the node off and reseat {named}, then its riser, cable or retimer; if the "
        f"count keeps rising, swap it with a neighbour: if the errors follow it, RMA the board. "
        f"For the RMA keep `lspci -vvv` of both ends and the counts before and after"
    )


def lines(events: Sequence[KernelEvent]) -> str:
    """How many lines of the log, as `×3`."""
    return f"×{sum(event.count or 0 for event in events) or '?'}"


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        "earlier.pci.functions[].address",
        "earlier.pci.functions[].aer.correctable",
        "earlier.pci.functions[].aer.fatal",
        "earlier.pci.functions[].aer.nonfatal",
        "earlier.pci.functions[].device",
        "earlier.pci.functions[].vendor",
        *SEEN_LINES,
        "host.uptime_s",
        "host.virtualization",
        "kernel_log.complete",
        "kernel_log.covered_s",
        "kernel_log.since_s",
        "kernel_log.events[].bus_id",
        "kernel_log.events[].count",
        "kernel_log.events[].kind",
        "kernel_log.events[].severity",
        "pci.functions[].address",
        "pci.functions[].aer.correctable",
        "pci.functions[].aer.fatal",
        "pci.functions[].aer.nonfatal",
        "pci.functions[].device",
        "pci.functions[].upstream[]",
        "pci.functions[].vendor",
        "pci.aer_ports[]",
        "pci.firmware_sources",
    ),
    judge=judge,
)
