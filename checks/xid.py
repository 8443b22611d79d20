"""The driver has logged no Xid since boot that points to faulty hardware.

**Why it matters.** An Xid in the kernel log is often the only trace of a GPU that hung, lost memory
rows or dropped a link. The job died, the GPU was reset and every other reading is fine again, but
the next job will die on it too.

**Read from** the kernel log since boot: /dev/kmsg, and the journal if the ring buffer no longer
reaches back to boot. Only lines of the kernel itself count.

**Verdicts.** `ignore` names Xids that applications cause by themselves; the finding shows them, but
they do not fail unless one GPU has them more often within `hours` than `repeats` allows. Xids 144
to 150 (NVLink of Blackwell) fail if their line or the unit's error status says that they are fatal.
Every other Xid fails, even if nodevet does not know its number. NVIDIA's catalogue is milder with
some of them: its action is to ignore them (IGNORE) or to restart the job (RESTART_APP). The finding
says so, and with `policy: nvidia` they do not fail. In a cascade, the first Xid counts: the finding
lists with it the Xids that follow from it (119 after 79, 63 or 94 within ten minutes after 48,
154). The value of Xids 144 to 150 names the links, and a waiver covers no other link; for other
numbers, a waiver covers any Xid of that number on that GPU.

A line counts only if it has the whole form of an Xid. The kernel begins many lines with the name of
a process, which its user chooses: the check counts lines that only begin like an Xid, but does not
judge them.

A cure ends an Xid: a reset of the GPU (the driver's Xid 154 back to None, vfio's `reset done`),
loading the driver again if the firmware hung, or a reboot in any case. A reset also ends Xids of
unknown numbers. On A100 it does not end 64 and 95; only a reboot ends 79. The advice includes the
driver's own recommendation from Xid 154.

With `--since` an Xid of the last look is over, too, and the finding shows it. If the GPU needs a
reset or the node a reboot after it, it fails until that has happened, because the fault remains.
The same holds for SXids. `repeats` counts all lines within its hours, even before the last look,
and fails if the last of them came after it.

A GPU that fell off the bus is one loss, however many lines report it. A line that names no GPU
belongs to the GPU with Xid 79, or to the only lost GPU. A GPU without Xids is ok only if the log
has no gap. If only the beginning of the log is gone (a volatile journal, an overwritten ring
buffer), the check judges the rest, and the finding says when the log begins. It is unknown if the
rest is less than an hour and less than the missing part, or if the GPU is lost. An SXid (NVSwitch)
fails unless the driver calls it non-fatal or has initialised the switch since; then it is not
applicable, and the finding shows it. Captured files without a kernel log are not applicable.

**To fix it** follow the advice, which is for the worst Xid. The log is empty again after a reboot,
but the fault may remain: run NVIDIA's field diagnostics or `dcgmi diag -r 3` before the node gets
jobs again.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from nodevet.checking.expected import join_parts
from nodevet.checking.log_events import by_address, last_of
from nodevet.checking.named import reads_of
from nodevet.checking.recovery import ACTIONS, REPORT, Remedy
from nodevet.checking.xid_events import (
    Xids,
    advice,
    by_code,
    code_of,
    describe,
    first_causes,
    is_recovered,
    last_times,
    latest_of,
    recovered_s,
)
from nodevet.checking.xids import (
    MILD,
    NVLINK5,
    OFF_BUS,
    RECOVERY,
    TOLERATED,
    Cure,
    cure_of,
    link_error,
    remedy_of,
)
from nodevet.evidence.across import (
    IN_HAND,
    each_gpu,
    gpu_functions,
    located_gpus,
    losses,
    off_the_bus,
    read_kernel_log,
    unlisted_gpus_finding,
)
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, lost_error, subject_of
from nodevet.evidence.host import HostInfo, boot_time
from nodevet.evidence.kernel_log import KernelEvent, KernelLog, coverage, span
from nodevet.evidence.last_look import SEEN_LINES, Seen, coverage_since_look, seen_lines
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

LINK = re.compile(r" link ([0-9]{1,3})\b")  # in the detail of an Xid of NVLink
LINK_XIDS = frozenset({74, *range(144, 151)})
TOGETHER_S = 60.0  # lines of NVSwitches and GPUs within this time are one fault
LOSS = "gpu_lost"  # the check that reports a lost GPU; its Xids follow from it
LOST = "it is lost, and the log covers only the time {}"
REMAPS = frozenset({63, 64})  # row_remapping reports them, too
MEMORY = frozenset({48, 94, 95, 140, 171, 172})  # ecc_errors counts them, too
LASTING = (Remedy.POWER, Remedy.REBOOT, Remedy.RESET, Remedy.LINK, Remedy.SYSTEM)
"""Remedies of faults that do not end by themselves: an Xid of the last look remains until its
cure."""
SWITCH = (
    f"{REPORT}, then reset all GPUs and NVSwitches together, or reboot: a restart of "
    "nvidia-fabricmanager alone clears nothing. If it happens again, suspect the baseboard"
)
UNMATCHED = (
    "not judged: {} lines of the kernel log begin like an Xid or SXid but have another form, for "
    "example because a process chose such a name; `dmesg | grep Xid` shows them"
)
Code = Annotated[int, Meta(ge=1, le=65535)]
Xid = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,4}$", title="the number of an Xid")]


class Params(CheckParams):
    """`xid: {}` or `xid: {ignore: [13, 43, 45], repeats: {31: 5, 94: 1}, hours: 24}`"""

    ignore: tuple[Code, ...] = TOLERATED
    """Numbers that do not count as faults."""
    repeats: Mapping[Xid, Annotated[int, Meta(ge=0)]] = {}
    """The most times that one GPU may have this Xid within `hours`; lines within 10 s count as
    one."""
    hours: Annotated[float, Meta(gt=0, le=8784)] = 24.0
    since: Literal["boot"] = "boot"
    policy: Literal["nodevet", "nvidia"] = "nodevet"
    """`nvidia`: Xids whose action in NVIDIA's catalogue is IGNORE or RESTART_APP do not fail
    either."""

    def tolerates(self, code: int) -> bool:
        """Whether the Xid does not count as a fault, unless it comes too often."""
        return code in self.ignore or (self.policy == "nvidia" and code in MILD)

    def allowed(self, code: int) -> int | None:
        """How often the Xid may occur within `hours`; None: no limit."""
        return self.repeats.get(str(code))


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    log = read_kernel_log(evidence)
    if isinstance(log, Finding):
        yield log
        return
    if log.unmatched:
        yield not_applicable(why=UNMATCHED.format(log.unmatched))
    context = context_of(evidence, log, params)
    yield from judge_gpus(evidence, log, context)
    yield from judge_switches(log, context.booted)


class Context(NamedTuple):
    """Facts by which the Xids of a GPU are judged. Times are seconds after boot."""

    params: Params
    booted: float | None  # when the node booted; None: unknown
    seen: Seen | None  # the lines of the last look
    switches: Sequence[tuple[float, str]]  # fatal SXids: times and names
    loaded_s: float | None  # when the driver was last loaded
    resets: Mapping[str, float]  # when a function was last reset, by address
    reset_s: float | None = None  # when this GPU was last reset
    architecture: str | None = None  # None: unknown

    def for_gpu(self, gpu: Gpu) -> "Context":
        return self.for_address(gpu.bus_id or "")._replace(architecture=gpu.gpu_architecture)

    def for_address(self, address: str) -> "Context":
        return self._replace(reset_s=self.resets.get(address) if address else None)

    def cured_s(self, code: int, recovered: float | None) -> float | None:
        """When an Xid last ended. `recovered`: when the driver reported that all is well."""
        cure = cure_of(code, self.architecture)
        if cure is Cure.BOOT:
            return None
        loaded = self.loaded_s if cure is Cure.LOAD else None
        return latest_of(loaded, self.reset_s, recovered)

    def is_old(self, event: KernelEvent) -> bool:
        """Whether the last look had this Xid and it leaves no fault behind."""
        code = code_of(event)
        if self.seen is None or code in (None, RECOVERY) or not self.seen.has(event):
            return False
        return remedy_of(code or 0) not in LASTING


def context_of(evidence: Evidence, log: KernelLog, params: Params) -> Context:
    events = log.events or ()
    switches = sorted(
        (moment, f"SXid {event.code} of nvswitch {event.bus_id}")
        for event in events
        if event.kind == "sxid" and event.severity == "fatal"
        for moment in event.times_s
    )
    loaded = last_moments(events, "driver_load").get("")
    booted, seen = boot_time(evidence[HostInfo].data), seen_lines(evidence)
    return Context(params, booted, seen, switches, loaded, last_moments(events, "gpu_reset"))


def last_moments(events: Iterable[KernelEvent], kind: str) -> dict[str, float]:
    """The time of the last event of a kind at each address."""
    last: dict[str, float] = {}
    for event in events:
        if event.kind == kind and event.last_s is not None:
            address = event.bus_id or ""
            last[address] = max(event.last_s, last.get(address, 0.0))
    return last


# --- GPUs


def judge_gpus(evidence: Evidence, log: KernelLog, context: Context) -> Iterator[Finding]:
    """Findings about the GPUs that NVML lists, and about others in the log."""
    gpus, off_bus = located_gpus(evidence), off_the_bus(evidence)
    at = at_addresses(evidence, log, gpus)
    unplaced = [*judge_events(NODE, at.pop("", []), context)]
    yield from unplaced
    if not gpus:
        yield from (finding for finding in each_gpu(evidence) if isinstance(finding, Finding))
    doubt, since = coverage_since_look(evidence, log)
    doubt = "an Xid names no GPU" if unplaced else doubt
    begins = coverage(log)[1]
    for gpu, loss in zip(gpus, losses(evidence), strict=True):
        is_off = loss is not None or gpu.bus_id in off_bus
        why = LOST.format(begins) if is_off and begins else doubt
        for finding in judge_gpu(gpu, at.get(gpu.bus_id or "", []), context, why, since):
            yield replace(finding, cause=LOSS) if is_off else finding
            if finding.verdict is Verdict.FAIL and doubt and not is_off:
                yield unknown(subject_of(gpu), why=doubt)
    for address in sorted(at.keys() - {gpu.bus_id for gpu in gpus}):
        subject = Subject(kind="pci", id=address, bus_id=address)
        for finding in judge_events(
            subject, at[address], context.for_address(address), {"bus id": address}
        ):
            yield replace(finding, cause=LOSS) if address in off_bus else finding
    short = unlisted_gpus_finding(evidence, at) if gpus else None
    if short is not None:
        yield short


def at_addresses(
    evidence: Evidence, log: KernelLog, gpus: Sequence[Gpu]
) -> dict[str, list[KernelEvent]]:
    """The Xids of each address. A line "off the bus" without an address belongs to the GPU with the
    Xid for it, or else to the only GPU that is lost to NVML or to the PCI bus."""
    at = by_address(event for event in log.events or () if event.kind in ("xid", "off_bus"))
    lines = [event for event in at.get("", []) if event.kind == "off_bus"]
    if not lines:
        return at
    where = {
        address
        for address, own in at.items()
        if any(event.kind == "xid" and event.code == OFF_BUS for event in own)
    }
    if not where and all(function.revision for function in gpu_functions(evidence)):
        where = {gpu.bus_id or "" for gpu in gpus if lost_error(gpu)} | off_the_bus(evidence)
    if len(where) == 1 and "" not in where:
        at.setdefault(where.pop(), []).extend(lines)
        at[""] = [event for event in at[""] if event not in lines]
    return at


def judge_gpu(
    gpu: Gpu, events: Sequence[KernelEvent], context: Context, doubt: str, since: str
) -> Iterator[Finding]:
    """`since`: when the log begins, if it begins after boot."""
    subject, own = subject_of(gpu), context.for_gpu(gpu)
    findings = [*judge_events(subject, events, own, board(gpu))] if events else []
    if findings:
        yield from findings
    elif "handle" in gpu.errors:
        yield unknown(subject, why=f"NVML: {gpu.why('handle')}")
    elif gpu.bus_id is None:
        yield unread(subject, gpu, "bus_id")
    elif doubt:
        yield unknown(subject, why=doubt)
    elif not events:
        yield ok(subject, expected=[], actual=[], why=since)
    else:
        split = split_by_cures(events, own)
        now = describe(split.now, own.booted)
        why = join_parts((now, split.describe_past(own), split.describe_old(own) or since))
        yield ok(subject, expected=[], actual=[], why=why)


def judge_events(
    subject: Subject,
    events: Sequence[KernelEvent],
    context: Context,
    details: Mapping[str, str] = {},
) -> Iterator[Finding]:
    """The failure of these Xids, and an unknown finding about unreadable lines. `details`: what
    identifies the board."""
    split = split_by_cures(events, context)
    if xids := faults(split, context):
        yield fault(subject, split, xids, context, details)
    unclear = next((event for event in events if code_of(event) is None), None)
    if unclear:
        yield unknown(subject, why=f"an Xid line that cannot be read: {unclear.text}")


# --- Xids that are over


class Split(NamedTuple):
    """The Xids of one GPU: those that count, and those that are over."""

    now: list[KernelEvent]
    old: list[KernelEvent]  # of the last look, and no fault any more
    past: list[KernelEvent]  # before their cure
    ended_s: float  # the time of the last cure

    def describe_past(self, context: Context) -> str:
        if not self.past:
            return ""
        past = describe(self.past, context.booted)
        return f"before a reset {span(self.ended_s)} after boot: {past}"

    def describe_old(self, context: Context) -> str:
        if not self.old or context.seen is None:
            return ""
        return context.seen.earlier_text([describe(self.old, context.booted)])


def split_by_cures(events: Sequence[KernelEvent], context: Context) -> Split:
    split = Split([], [], [], 0.0)
    recovered = recovered_s(events)
    for event in events:
        code = code_of(event)
        end = None if code is None else context.cured_s(code, recovered)
        if is_recovered(event):
            continue
        if end is None or event.last_s is None or event.last_s >= end:
            (split.old if context.is_old(event) else split.now).append(trim_event(event, end))
        else:
            split.past.append(event)
            split = split._replace(ended_s=max(end, split.ended_s))
    return split


def trim_event(event: KernelEvent, end: float | None) -> KernelEvent:
    """The event without occurrences before `end`."""
    times = tuple(moment for moment in event.times_s if end is None or moment >= end)
    if len(times) == len(event.times_s):
        return event
    first = times[0] if times else event.last_s
    return replace(event, times_s=times, count=len(times) or None, first_s=first)


# --- Xids that are faults


def faults(split: Split, context: Context) -> Xids:
    """The Xids that are a fault, by number: those that always are, and all of a number that came
    too often."""
    xids = by_code(split.now)
    bad = {code: [event for event in same if is_fault(event, context.params)]
           for code, same in xids.items()}  # fmt: skip
    often = {code: same for code, same in xids.items() if too_many(code, same, split, context)}
    return {code: same for code, same in {**bad, **often}.items() if same}


def is_fault(event: KernelEvent, params: Params) -> bool:
    """Whether even one such event is a fault."""
    code = code_of(event)
    if code is None or params.tolerates(code) or params.allowed(code) is not None:
        return False
    if code in NVLINK5:
        return link_error(event.severity, event.detail).fatal
    return not is_recovered(event)


def too_many(code: int, events: Sequence[KernelEvent], split: Split, context: Context) -> bool:
    """Whether the Xid came more often within the hours than the baseline allows, and last came
    after the last look."""
    most, within_s = context.params.allowed(code), context.params.hours * 3600
    if most is None:
        return False
    events = [*events, *(event for event in split.old if code_of(event) == code)]
    seen = context.seen.latest(events) if context.seen else -1.0
    if any(not event.times_s for event in events):
        return sum(most + 1 if event.count is None else event.count for event in events) > most
    moments = sorted(moment for event in events for moment in event.times_s)
    pairs = zip(moments, moments[most:], strict=False)
    return any(last - first <= within_s and last > seen for first, last in pairs)


def fault(
    subject: Subject, split: Split, xids: Xids, context: Context, details: Mapping[str, str]
) -> Finding:
    architecture = context.architecture or ""
    roots = first_causes(xids, architecture)
    return fail(
        subject,
        expected=[],
        actual=[value for code in roots for value in by_link(code, xids[code])],
        why=why_of(split, xids, roots, context),
        advice=advice(xids, architecture),
        details={**details, **last_times(split.now, context.booted)},
        last=last_of(split.now, context.booted) or UNSET,
        cause=cause_of(roots),
    )


def cause_of(roots: Iterable[int]) -> str | UnsetType:
    """The check that reports the same memory fault."""
    if REMAPS.issuperset(roots):
        return "row_remapping"
    return "ecc_errors" if (REMAPS | MEMORY).issuperset(roots) else UNSET


def by_link(code: int, events: Iterable[KernelEvent]) -> list[Value]:
    """As `149 link 1`, one for each NVLink in the lines; only the number without links."""
    named = (LINK.search(event.detail or "") for event in events if code in NVLINK5)
    links = sorted({int(match[1]) for match in named if match})
    return [f"{code} link {link}" for link in links] or [code]


def why_of(split: Split, xids: Xids, roots: Sequence[int], context: Context) -> str:
    """Which Xid came first and what followed, the limits, and the Xids that are over."""
    after = xids.keys() - set(roots)
    first = describe([event for event in split.now if code_of(event) not in after], context.booted)
    followed = describe([event for event in split.now if code_of(event) in after], context.booted)
    return join_parts(
        (
            f"{first}; then {followed}" if followed else first,
            *limits(xids, context.params),
            near_switches(by_code(split.now), context.switches),
            split.describe_past(context),
            split.describe_old(context),
            milder_text(roots, context.params),
        )
    )


def limits(xids: Iterable[int], params: Params) -> Iterator[str]:
    for code in sorted(xids):
        if (most := params.allowed(code)) is not None:
            yield f"Xid {code} may come at most {most} times in {params.hours:g} h"


def near_switches(xids: Xids, switches: Sequence[tuple[float, str]]) -> str:
    """The switches that logged a fatal error at the time of this GPU's link errors."""
    moments = [moment for code in LINK_XIDS & xids.keys() for event in xids[code]
               for moment in event.times_s]  # fmt: skip
    near = {
        switches[place][1]
        for moment in moments
        if (place := bisect_left(switches, (moment - TOGETHER_S, ""))) < len(switches)
        and switches[place][0] <= moment + TOGETHER_S
    }
    return f"at the same time {', '.join(sorted(near)[:4])}" if near else ""


def milder_text(codes: Sequence[int], params: Params) -> str:
    """Says if NVIDIA's own action for these Xids is milder than a failure; empty if not."""
    actions = [f"{MILD[code]} for {code}" for code in codes
               if code in MILD and params.allowed(code) is None]  # fmt: skip
    if not actions:
        return ""
    return f"NVIDIA's action is {', '.join(actions)}: `policy: nvidia` follows it"


# --- NVSwitches


def judge_switches(log: KernelLog, booted: float | None) -> Iterator[Finding]:
    """The findings by SXids, which end when the driver initialises the switch again, because that
    resets it."""
    events = log.events or ()
    probed = last_moments(events, "nvswitch_probe")
    switches = by_address(event for event in events if event.kind == "sxid")
    for address, own in sorted(switches.items()):
        subject = Subject(kind="nvswitch", id=address, bus_id=address) if address else NODE
        yield judge_switch(subject, own, probed.get(address, 0.0) if address else 0.0, booted)


def judge_switch(
    subject: Subject, events: Sequence[KernelEvent], probed_s: float, booted: float | None
) -> Finding:
    serious = [event for event in events if event.severity != "nonfatal"]
    current = [event for event in serious if event.last_s is None or event.last_s >= probed_s]
    codes = sorted({event.code for event in current if event.code is not None})
    why = f"SXid {describe(events, booted, {})}"
    if codes:
        last = last_of(current, booted) or UNSET
        return fail(subject, expected=[], actual=codes, why=why, advice=SWITCH, last=last)
    if current:
        return unknown(subject, why=f"an SXid line that cannot be read: {current[0].text}")
    if serious:
        reset = f"before the switch was initialised {span(probed_s)} after boot"
        return not_applicable(subject, why=f"{reset}: {why}")
    return not_applicable(subject, why=f"non-fatal according to the driver: {why}")


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *SEEN_LINES,
        *reads_of("gpu.gpus[]", "bus_id", "gpu_architecture"),
        *reads_of("pci.functions[]", "address", "revision", "driver"),
        *reads_of("kernel_log", "complete", "covered_s", "since_s", "unmatched"),
        *reads_of("kernel_log.events[]", "bus_id", "code", "count", "detail", "kind", "severity"),
        "kernel_log.events[].times_s[]",
    ),
    judge=judge,
    actions={**ACTIONS, SWITCH: NeededAction.GPU_RESET},
)
