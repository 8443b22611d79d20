"""No PCIe device has more link errors than the baseline allows.

**Why it matters.** The link silently retries corrected errors; a rising count points to a loose
cable, riser or retimer, days before a link loses lanes or a GPU falls off the bus. An uncorrected
error lost data, and a fatal error broke the link.

**Read from** the counters of Advanced Error Reporting,
`/sys/bus/pci/devices/*/aer_dev_{correctable,nonfatal,fatal}`, of every NVIDIA function, NIC, NVMe
drive and the ports above them. `/sys/bus/pci_express/drivers/aer` and
`/sys/bus/platform/drivers/GHES` show who handles errors. The kernel log since boot has AER, DPC and
the reports of the firmware (APEI).

**Verdicts.** Uncorrected errors fail, counted or logged. The check judges corrected errors if the
baseline sets a maximum, in total or per hour since boot; the first hour counts as a whole hour.
With `--sample` the limit per hour also fails if more errors came during the sample than chance
allows, and a sample that is long enough replaces the mean since boot; a counter that went back is
unknown. With `--since` the check judges the corrected errors per hour since the last look in the
same way. Uncorrected errors then fail only if one of their counters or the log has a new one, and
the log must cover all the time since the last look. A function without counters does not have this
reporting. The check trusts counters that stay 0 only below a port that reports to the kernel. If
the firmware handles errors first, the check judges the log, which has only the errors that APEI
passes on. There it counts corrected errors by their lines, two lines per error; beyond those,
corrected errors are not applicable. The same holds for kernels before 4.19, which count nothing.
The check is not applicable if neither the kernel nor APEI handles errors, and in a virtual machine,
because its host receives the errors. The node is ok only if all counters were read and the log has
no gap. If the beginning of the log is gone, the finding says when the log begins, as `xid` does.
Captured files without a log are not applicable. Some firmware causes unsupported requests, which
are counted, while it looks for devices: allow as many as a healthy node of the same kind has at
boot, or leave this check out.

**To fix it** follow the advice, which depends on the kind of error: physical-layer errors need work
on the hardware (reseat, riser, cable, retimer), protocol errors need firmware or driver updates.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from msgspec import UNSET, Meta

from nodevet.checking.before import Counts, counts_before
from nodevet.checking.expected import join_parts
from nodevet.checking.log_events import by_address
from nodevet.checking.named import reads_of
from nodevet.checking.one_value import values_at
from nodevet.checking.pace import since_boot
from nodevet.evidence.across import located_gpus, read_kernel_log
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel_log import KernelEvent, KernelLog, line_of
from nodevet.evidence.last_look import SEEN_LINES, Seen, coverage_since_look, differ, seen_lines
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.evidence.rates import Growth, Sample, earlier_sample
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

NO_COUNTER = "ENOENT"  # the function or the kernel does not count errors
PHYSICAL = frozenset({"RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "DLP", "SDES"})
"""Kinds of errors that bad contacts and weak signals cause, named as in the kernel's aer.c."""
FIELDS = ("correctable", "nonfatal", "fatal")
UNCORRECTED = FIELDS[1:]
BOOT = "drain the node, run nvidia-bug-report.sh and reboot"
LINES_EACH = 2  # most lines of the log for one corrected error

Most = Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`pcie_errors: {}` or `pcie_errors: {corrected: 100, corrected_per_hour: 10}`"""

    corrected: Most | None = None
    """The most corrected errors of a function since boot; if not set, they are not judged."""
    corrected_per_hour: Annotated[float, Meta(ge=0)] | None = None
    """The most corrected errors of a function per hour, since boot and while sampled."""
    nonfatal: Most = 0
    """The most uncorrected, nonfatal errors of a function, by its counter."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    values = values_at(evidence, (Pci, "functions"), label="PCI")
    if isinstance(values, Finding):
        yield values
    elif not values[0]:
        yield unknown(why="the PCI bus shows no NVIDIA function, NIC or NVMe drive")
    else:
        yield from judge_functions(evidence, params, values[0])


def judge_functions(
    evidence: Evidence, params: Params, functions: Sequence[PciFunction]
) -> Iterator[Finding]:
    node = node_of(evidence, params, functions)
    errors = [errors_of(function, node) for function in functions]
    faults = [
        *faults_of(errors, node),
        *faults_elsewhere(node, {function.address for function in functions}),
    ]
    yield from faults
    doubts = [
        *node.doubts,
        log_doubt(evidence),
        missing_ports(functions),
        *unreporting_ports(node.ports, evidence),
    ]
    doubts += (doubt for entry in errors for doubt in doubts_of(entry))
    if doubt := join_parts(dict.fromkeys(doubts)):
        yield unknown(why=doubt)
    elif not faults:
        yield from without_faults(evidence, params, errors)


class Node(NamedTuple):
    """Facts of the node besides the counters of a function."""

    params: Params
    events: Mapping[str, Sequence[KernelEvent]]  # lines of the log, by address; "": no address
    ports: frozenset[str]  # ports that report errors to the kernel
    gpus: Mapping[str | None, Gpu]  # by address
    below: Mapping[str, str]  # finding of the device at a port's link, by port address
    seen: Seen | None  # the log's lines at the last look
    sample: Sample[Pci] | None
    hours: float | None  # since boot, if the baseline limits errors per hour
    doubts: tuple[str, ...]  # why the rate of errors is unknown


def node_of(evidence: Evidence, params: Params, functions: Sequence[PciFunction]) -> Node:
    bus, sample = evidence[Pci].data, earlier_sample(evidence, Pci)
    gpus = {gpu.bus_id: gpu for gpu in located_gpus(evidence)}
    hourly = params.corrected_per_hour is not None
    hours, doubt = since_boot(evidence) if hourly else (None, "")
    return Node(
        params=params,
        events=by_address(aer_events(evidence)),
        ports=frozenset((bus.aer_ports if bus else None) or ()),
        gpus=gpus,
        below=partners(functions, gpus),
        seen=seen_lines(evidence),
        sample=sample,
        hours=hours,
        doubts=(doubt, doubt_of_sample(sample) if hourly else ""),
    )


class Errors(NamedTuple):
    """The errors of one function."""

    function: PciFunction
    events: Sequence[KernelEvent]  # lines of the log about it
    is_counted: bool  # below a port that reports to the kernel: its counters grow
    is_old: bool  # the last look had all uncorrected errors
    grown: Growth | None  # corrected errors since an earlier reading; None without one

    @property
    def uncorrected(self) -> str:
        """As `0000:5d:00.0 fatal 1, logged ×2`; empty if there are none."""
        counts = {name: getattr(self.function.aer, name) for name in UNCORRECTED}
        parts = [f"{name} {count}" for name, count in counts.items() if count]
        serious = serious_of(self.events)
        parts += [f"logged {lines_text(serious)}"] if serious else []
        return f"{self.function.address} {', '.join(parts)}" if parts else ""


def errors_of(function: PciFunction, node: Node) -> Errors:
    events = node.events.get(function.address, ())
    is_counted = not node.ports.isdisjoint((function.address, *(function.upstream or ())))
    grown = error_growth(function, node) if is_counted else None
    return Errors(function, events, is_counted, is_old(function, events, node), grown)


def error_growth(function: PciFunction, node: Node) -> Growth | None:
    """How many corrected errors came since an earlier reading; None if that reading does not show
    it."""
    earlier_function, sample = earlier(function, node.sample), node.sample
    if node.params.corrected_per_hour is None or sample is None or doubt_of_sample(sample):
        return None
    if sample.look and (earlier_function is None or is_another(earlier_function, function)):
        return None
    return counts_before(sample, counters(earlier_function), counters(function)).growth_of(
        "correctable"
    )


def earlier(function: PciFunction, sample: Sample[Pci] | None) -> PciFunction | None:
    return sample.data.by_address.get(function.address) if sample and sample.data else None


def is_another(old: PciFunction, now: PciFunction) -> bool:
    return differ((old.vendor, now.vendor), (old.device, now.device))


def is_old(function: PciFunction, events: Sequence[KernelEvent], node: Node) -> bool:
    """Whether the counts of uncorrected errors are those of the last look, and none was logged
    since. If the log does not cover all the time since, it may lack an error from before a reset of
    the device."""
    earlier_function = earlier(function, node.sample) if node.sample and node.sample.look else None
    if earlier_function is None or node.seen is None or serious_of(new_of(events, node.seen)):
        return False
    return (earlier_function.vendor, earlier_function.device) == (
        function.vendor,
        function.device,
    ) and all(
        getattr(earlier_function.aer, name) == getattr(function.aer, name) for name in UNCORRECTED
    )


# --- faults


def faults_of(errors: Iterable[Errors], node: Node) -> Iterator[Finding]:
    for entry in errors:
        aer = entry.function.aer
        if not (entry.events or aer.correctable or aer.nonfatal or aer.fatal):
            continue
        if above := [*uncorrected_above(entry, node.params), *corrected_above(entry, node)]:
            yield fault(entry, node, above)


Above = tuple[str, str, object]
"""What is above its limit: its name, the expected text, the actual count."""


def above(name: str, most: float, count: float | None) -> Iterator[Above]:
    if count is not None and count > most:
        yield name, f"at most {most:g}", count


def uncorrected_above(errors: Errors, params: Params) -> Sequence[Above]:
    """The counters above their limits; if none is, the lines of the log."""
    if errors.is_old:
        return ()
    aer, serious = errors.function.aer, serious_lines(errors, params)
    counted = [*above("fatal", 0, aer.fatal), *above("nonfatal", params.nonfatal, aer.nonfatal)]
    if serious and not counted:
        return [("logged", "none uncorrected", lines_text(serious))]
    return counted


def serious_lines(errors: Errors, params: Params) -> list[KernelEvent]:
    """The lines of new uncorrected errors, without nonfatal errors that the counter judges."""
    by_counter = params.nonfatal > 0 and errors.function.aer.nonfatal is not None
    kinds = ("fatal",) if by_counter else UNCORRECTED
    return [] if errors.is_old else [event for event in errors.events if event.severity in kinds]


def corrected_above(errors: Errors, node: Node) -> Iterator[Above]:
    count, grown = corrected_count(errors), errors.grown
    if node.params.corrected is not None:
        yield from above("corrected", node.params.corrected, count)
    most = node.params.corrected_per_hour
    if most is None or node.hours is None:
        return
    too_fast = grown.is_above(most) if grown else None
    if grown and too_fast:
        yield "corrected per hour", f"at most {most:g}", grown.text
    elif too_fast is None:
        yield from above("corrected per hour", most, round(count / node.hours, 1))


def corrected_count(errors: Errors) -> int:
    """The number of corrected errors: the counter's, or, if the counter does not grow, that of the
    log's lines if it is higher."""
    count = errors.function.aer.correctable
    if errors.is_counted and count is not None:
        return count
    logged = sum(event.count or 0 for event in errors.events if event.severity == "corrected")
    return max(count or 0, logged // LINES_EACH)


def fault(errors: Errors, node: Node, above: Sequence[Above]) -> Finding:
    function, address = errors.function, errors.function.address
    gpu = node.gpus.get(address)
    kinds = {kind: count for kind, count in function.aer.kinds.items() if count > 0}
    shown = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    actual = {name: actual_count for name, _, actual_count in above}
    line = line_of(serious_lines(errors, node.params) or errors.events)
    is_lost = not actual.keys().isdisjoint((*UNCORRECTED, "logged"))
    return fail(
        subject_of(gpu) if gpu else Subject(kind="pci", id=address, bus_id=address),
        expected={name: expected for name, expected, _ in above},
        actual=actual,
        why=shown,
        advice=advice("the GPU" if gpu else "the device", kinds, is_lost),
        details={**(board(gpu) if gpu else {}), **logs(address, line)},
        cause="gpu_lost" if function.revision == "ff" else node.below.get(address, UNSET),
    )


def faults_elsewhere(node: Node, known: Collection[str]) -> Iterator[Finding]:
    """Failures from the log about devices that are not on the bus, or not named."""
    for address, events in sorted(node.events.items()):
        serious = serious_of(events if address else new_of(events, node.seen))
        if serious and address not in known:
            yield fail(
                Subject(kind="pci", id=address, bus_id=address) if address else NODE,
                expected={"logged": "none uncorrected"},
                actual={"logged": lines_text(serious)},
                advice=advice("the device", {}, True),
                details=logs(address, line_of(serious)),
            )


def partners(functions: Sequence[PciFunction], gpus: Mapping[str | None, Gpu]) -> Mapping[str, str]:
    """The finding of the device at the other end of a port's link, by port address: both ends count
    the errors of one link."""
    by_port: dict[str, str] = {}
    for function in functions:
        if function.upstream and function.kind != "port":
            gpu = gpus.get(function.address)
            label = subject_of(gpu).label if gpu else f"pci {function.address}"
            by_port.setdefault(function.upstream[0], f"pcie_errors {label}")
    return by_port


def logs(address: str, line: str) -> dict[str, str]:
    texts = {"bus id": address, "kernel log": line}
    return {word: text for word, text in texts.items() if text}


def advice(named: str, kinds: Mapping[str, int], is_lost: bool) -> str:
    """`is_lost`: whether some errors were not corrected."""
    first = f"{BOOT}; " if is_lost else ""
    if kinds and not PHYSICAL & set(kinds):
        return (
            f"{first}these are protocol errors, not signal errors: update firmware, BIOS and "
            f"driver; if only {named} has them, and has them in other nodes too, RMA it"
        )
    return (
        f"{first}power the node off and reseat {named}, then its riser, cable or retimer; if the "
        "count keeps rising, swap it with a neighbour: if the errors follow it, RMA the board. "
        "For the RMA save `lspci -vvv` of both ends and the counts before and after"
    )


# --- doubts


def doubt_of_sample(sample: Sample[Pci] | None) -> str:
    if sample is None or (sample.data and sample.data.functions):
        return ""
    why = f"functions: {sample.data.why('functions')}" if sample.data else sample.why
    return f"sample of PCI: {why}"


def doubts_of(errors: Errors) -> Iterator[str]:
    """Why the errors of a function are unknown."""
    function, grown = errors.function, errors.grown
    for field in FIELDS:
        count = getattr(function.aer, field)
        if count is None and function.aer.errors.get(field) != NO_COUNTER:
            yield f"aer {field}: {function.aer.why(field)}"
        elif count is not None and count < 0:
            yield f"aer {field}: {count} is not a valid count"
    if grown is not None and grown.by is None and function.aer.correctable is not None:
        yield f"corrected errors of {function.address}: {grown.why}"


def log_doubt(evidence: Evidence) -> str:
    """Why the kernel log may have errors that nodevet did not see; empty without a log to read."""
    log = read_kernel_log(evidence)
    if isinstance(log, Finding):
        return "" if log.verdict is Verdict.NOT_APPLICABLE else log.why
    seen = seen_lines(evidence)
    unclear = [event for event in new_of(log.events or (), seen)
              if event.kind == "aer" and not event.severity]  # fmt: skip
    if unclear:
        return f"a line without a severity: {line_of(unclear)}"
    return coverage_since_look(evidence, log)[0]


def missing_ports(functions: Sequence[PciFunction]) -> str:
    """Which ports above a function were not read."""
    unread = [function for function in functions if function.upstream is None]
    if unread:
        return f"{unread[0].address}: upstream: {unread[0].why('upstream')}"
    named = {port for function in functions for port in function.upstream or ()}
    missing = sorted(named - {function.address for function in functions})
    if not missing:
        return ""
    expected = len(functions) + len(missing)
    return f"{len(functions)} of {expected} PCI functions were read: not {', '.join(missing[:8])}"


def unreporting_ports(reporting_ports: frozenset[str], evidence: Evidence) -> Iterator[str]:
    """Root ports that count errors and do not report them to the kernel, while others do: the
    firmware handles either all ports of a host bridge or none."""
    bus = evidence[Pci].data or Pci()
    if bus.aer_ports is None:
        yield f"aer_ports: {bus.why('aer_ports')}"
    domains = {domain_of(address) for address in reporting_ports}
    for address in sorted(
        {function.upstream[-1] for function in bus.functions or () if function.upstream}
    ):
        port = bus.by_address.get(address)
        counts = port is not None and has_counters(port)
        if counts and address not in reporting_ports and domain_of(address) in domains:
            yield f"port {address} counts errors but is not in aer_ports, which has other ports"


def domain_of(address: str) -> str:
    """The domain of a PCI address.

    >>> domain_of("0000:17:01.0")
    '0000'
    """
    return address.partition(":")[0]


# --- no faults and no doubts


def without_faults(
    evidence: Evidence, params: Params, errors: Sequence[Errors]
) -> Iterator[Finding]:
    old = [entry.uncorrected for entry in errors if entry.is_old and entry.uncorrected]
    counting = [entry for entry in errors if has_counters(entry.function)]
    untrusted = sum(not entry.is_counted for entry in counting)
    if evidence[KernelLog].status == "absent":
        yield not_applicable(why=f"no errors were counted, and {evidence[KernelLog].why}")
    elif counting and not untrusted:
        yield fine_finding(evidence, old)
    else:
        yield from by_log(evidence, params, len(counting) - untrusted, untrusted, old)


def fine_finding(evidence: Evidence, old: Sequence[str], why: str = "") -> Finding:
    """The ok finding; `why`: its basis besides the time that the log covers. `old`: the uncorrected
    errors of the last look."""
    seen, log = seen_lines(evidence), evidence[KernelLog].data
    before = seen.earlier_text(old) if seen else ""
    since = before or (coverage_since_look(evidence, log)[1] if log else "")
    return ok(expected="within limits", actual="within limits", why=join_parts((why, since)))


def by_log(
    evidence: Evidence, params: Params, counted: int, untrusted: int, old: Sequence[str]
) -> Iterator[Finding]:
    """Findings from the log, where counters are missing or never grow. `counted`, `untrusted`: the
    numbers of functions whose counters are trusted, and are not."""
    data, host = evidence[Pci].data, evidence[HostInfo].data
    sources = data.firmware_sources if data else None
    if host is None or not host.virtualization:
        yield unknown(why=f"virtualization: {host.why('virtualization') if host else 'no host'}")
        return
    if host.virtualization not in ("none", "container"):
        yield not_applicable(why="a virtual machine: PCIe errors are reported to its host")
        return
    if data and data.aer_ports and not untrusted:
        why = "no function here counts its errors, so the check judges only the kernel log"
    elif sources is None:
        yield unknown(why=f"firmware_sources: {data.why('firmware_sources') if data else ''}")
        return
    elif sources > 0:
        where = f"firmware-first, and the counters of {untrusted} functions are not reliable"
        why = f"{where}: the check judges errors that the firmware passes on to the kernel's log"
    else:
        if counted:
            yield fine_finding(evidence, old)
        what = f"errors of {untrusted} functions" if counted else "PCIe errors here"
        yield not_applicable(
            why=f"neither the kernel nor APEI handles {what}: the BMC's event log may have them"
        )
        return
    yield fine_finding(evidence, old, why)
    if (params.corrected, params.corrected_per_hour) != (None, None):
        yield not_applicable(why=f"corrected errors are not counted; {why}")


# --- lines of the log, and counters


def aer_events(evidence: Evidence) -> Iterator[KernelEvent]:
    log = evidence[KernelLog].data
    return (event for event in (log.events if log else None) or () if event.kind == "aer")


def new_of(events: Sequence[KernelEvent], seen: Seen | None) -> list[KernelEvent]:
    return [event for event in events if not (seen and seen.has(event))]


def serious_of(events: Sequence[KernelEvent]) -> list[KernelEvent]:
    return [event for event in events if event.severity in UNCORRECTED]


def lines_text(events: Sequence[KernelEvent]) -> str:
    """The number of lines of the log, as `×3`."""
    return f"×{sum(event.count or 0 for event in events) or '?'}"


def counters(function: PciFunction | None) -> Counts:
    return {name: getattr(function.aer, name) for name in FIELDS} if function else {}


def has_counters(function: PciFunction) -> bool:
    aer = function.aer
    return (aer.correctable, aer.nonfatal, aer.fatal) != (None, None, None)


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        "earlier.pci.functions[].address",
        *reads_of("earlier.pci.functions[].aer", "correctable", "fatal", "nonfatal"),
        *reads_of("earlier.pci.functions[]", "device", "vendor"),
        *SEEN_LINES,
        *reads_of("host", "uptime_s", "virtualization"),
        *reads_of("kernel_log", "complete", "covered_s", "since_s"),
        *reads_of("kernel_log.events[]", "bus_id", "count", "kind", "severity"),
        "pci.functions[].address",
        *reads_of("pci.functions[].aer", "correctable", "fatal", "nonfatal"),
        *reads_of("pci.functions[]", "device", "upstream[]", "vendor"),
        *reads_of("pci", "aer_ports[]", "firmware_sources"),
    ),
    judge=judge,
    actions={BOOT: NeededAction.REBOOT},
)
