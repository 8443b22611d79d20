"""The driver has logged no Xid since boot that points to faulty hardware.

**Why it matters.** An Xid in the kernel log is often the only trace of a GPU that hung, lost memory
rows or dropped a link: the job died, the GPU was reset, every other reading is fine again, and the
next job will die on it too.

**Read from** the kernel log since boot: /dev/kmsg, and the journal if the ring buffer no longer
reaches back to boot. Only lines that the kernel itself wrote count.

**Verdicts.** `ignore` names the Xids that an application causes by itself; they are shown, and are
not a fault, unless `repeats` says how often one GPU may have one within `hours`. Xids 144 to 150
(NVLink of Blackwell) are a fault if their line says that they are fatal, or the unit's error status
does. Every other one fails, a number that nodevet does not know too. NVIDIA's catalogue is milder
with some that fail here: it ignores them (IGNORE) or restarts the job (RESTART_APP). The finding
says so, and with `policy: nvidia` they are no fault. Of a cascade what came first counts: what
follows from it (79 and then 119, 48 and within ten minutes 63 or 94, 154) is told with it. The
value of Xids 144 to 150 names the links, and a waiver covers no other link; of other numbers a
waiver covers any Xid of that number on that GPU.

A line counts only if it has the whole form of an Xid. The kernel begins many lines with the name of
a process, which its user chooses: what only begins like an Xid is counted, and not judged.

An Xid is over once something has ended it: a reset of the GPU (the driver's Xid 154 back to None,
vfio's `reset done`), loading the driver again if the firmware hung, a reboot in any case. A reset
ends an unknown number, too. On A100 it does not end 64 and 95; only a reboot ends 79. The driver's
own recommendation, in Xid 154, goes into the advice.

With `--since` an Xid that was there at the last look is past, too, and told; but not one after
which a GPU needs a reset, or the node a reboot, until that has happened: its fault is still there.
So is an SXid. `repeats` counts within its hours, whenever the last look was, and fails if the last
of them came since.

A GPU that fell off the bus is one loss, however many lines say so; a line that does not say of
which GPU belongs to the one that has Xid 79, or that alone is lost. A GPU without Xids is ok only
if the log has no gap. One whose beginning alone is gone (a volatile journal, a ring buffer that was
overwritten) is judged for what it covers, and the finding says since when; unknown if that is less
than an hour and less than what is gone, and for a GPU that is lost. An SXid (NVSwitch) fails unless
the driver calls it non-fatal or has initialised the switch since; then it is not applicable, and
shown. Captured files without a kernel log are not applicable.

**To fix it** follow the advice, which is for the worst Xid. The log is empty again after a reboot,
the fault may not be: run NVIDIA's field diagnostics or `dcgmi diag -r 3` before the node gets jobs
again.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta

from nodevet.checking.recovery import BY_NUMBER, REPORT, Remedy
from nodevet.checking.xids import (
    MILD,
    NAMES,
    NVLINK5,
    OFF_BUS,
    RECOVERY,
    TOLERATED,
    Cure,
    cure_of,
    follows,
    follows_soon,
    link_error,
    remedy_of,
)
from nodevet.evidence.across import (
    IN_HAND,
    each_gpu,
    gpu_functions,
    located,
    logged,
    losses,
    off_the_bus,
    unlisted,
)
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, lost, subject_of
from nodevet.evidence.host import HostInfo, at_uptime, boot_time
from nodevet.evidence.kernel_log import KernelEvent, KernelLog, coverage, line_of, span
from nodevet.evidence.last_look import SEEN_LINES, Seen, covered, seen_lines
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Value,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

LINK = re.compile(r" link ([0-9]{1,3})\b")  # in the detail of an Xid of NVLink
SWITCH = (
    f"{REPORT}, then reset all GPUs and NVSwitches together, or reboot: a restart of "
    "nvidia-fabricmanager alone clears nothing. If it comes back, suspect the baseboard"
)
REMAPPING = "row_remapping"
ECC = "ecc_errors"
LOSS = "gpu_lost"  # the check that tells of a GPU that is lost, whatever Xids say so too
REMAPS = frozenset({63, 64})  # what row_remapping tells of, too
MEMORY = frozenset({48, 94, 95, 140, 171, 172})  # what ecc_errors counts, too
LINK_XIDS = frozenset({74, *range(144, 151)})
TOGETHER_S = 60.0  # what NVSwitches and GPUs log within this is of one fault
LASTING = (Remedy.POWER, Remedy.REBOOT, Remedy.RESET, Remedy.LINK, Remedy.SYSTEM)
"""What does not end by itself: until its cure, what was there at the last look is there still."""
UNMATCHED = (
    "not judged: {} lines of the kernel log begin like an Xid or SXid and have another form, as "
    "those do in which a process names itself so; `dmesg | grep Xid` shows them"
)
CASCADE_S = 600.0  # within which what follows from an Xid comes
EARLIER_S = 5.0  # lines of one fault are not always in their order
Code = Annotated[int, Meta(ge=1, le=65535)]


Xid = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,4}$", title="the number of an Xid")]


class Params(CheckParams):
    """`xid: {}` or `xid: {ignore: [13, 43, 45], repeats: {31: 5, 94: 1}, hours: 24}`"""

    ignore: tuple[Code, ...] = TOLERATED
    """Numbers that are no fault here."""
    repeats: Mapping[Xid, Annotated[int, Meta(ge=0)]] = {}
    """Xid: how often one GPU may have it within `hours`; lines within 10 s count as one."""
    hours: Annotated[float, Meta(gt=0, le=8784)] = 24.0
    since: Literal["boot"] = "boot"
    policy: Literal["nodevet", "nvidia"] = "nodevet"
    """`nvidia`: what NVIDIA's catalogue answers with IGNORE or RESTART_APP is no fault either."""

    def tolerates(self, code: int) -> bool:
        """Whether it is no fault here, unless it comes too often."""
        return code in self.ignore or (self.policy == "nvidia" and code in MILD)

    def allowed(self, code: int) -> int | None:
        """How often it may occur within `hours`; None: it is not counted."""
        return self.repeats.get(str(code))


class Context(NamedTuple):
    """What else tells of the Xids of a GPU."""

    ends: Mapping[Cure, float | None]  # when what ends an Xid happened last, seconds after boot
    switches: Sequence[tuple[float, str]] = ()  # when there was a fatal SXid, and its name
    resets: Mapping[str, float] = {}  # when a function was reset, by address
    architecture: str | None = None  # None: not known
    seen: Seen | None = None  # at the last look

    def known(self, event: KernelEvent) -> bool:
        """Whether an Xid was there at the last look, and leaves nothing behind."""
        code = number(event)
        if self.seen is None or code in (None, RECOVERY) or not self.seen.has(event):
            return False
        return remedy_of(code or 0) not in LASTING

    def of(self, gpu: Gpu) -> "Context":
        return self.at(gpu.bus_id or "")._replace(architecture=gpu.gpu_architecture)

    def at(self, address: str) -> "Context":
        moment = self.resets.get(address) if address else None
        both = latest_of(self.ends.get(Cure.LOAD), moment)
        return self._replace(ends={Cure.RESET: moment, Cure.LOAD: both})

    def together(self, own: Mapping[int, Sequence[KernelEvent]]) -> str:
        """Which switches logged a fatal error when this GPU logged one of its links."""
        moments = [m for code in LINK_XIDS & own.keys() for event in own[code]
                   for m in event.times_s]  # fmt: skip
        near = {
            self.switches[place][1]
            for moment in moments
            if (place := bisect_left(self.switches, (moment - TOGETHER_S, ""))) < len(self.switches)
            and self.switches[place][0] <= moment + TOGETHER_S
        }
        return f"at the same time {', '.join(sorted(near)[:4])}" if near else ""


def context_of(events: Sequence[KernelEvent], seen: Seen | None) -> Context:
    def moments(kind: str) -> dict[str, float]:
        last: dict[str, float] = {}
        for event in events:
            if event.kind == kind and event.last_s is not None:
                address = event.bus_id or ""
                last[address] = max(event.last_s, last.get(address, 0.0))
        return last

    fatal = sorted(
        (moment, f"SXid {each.code} of nvswitch {each.bus_id}")
        for each in events
        if each.kind == "sxid" and each.severity == "fatal"
        for moment in each.times_s
    )
    ends = {Cure.LOAD: moments("driver_load").get("")}
    return Context(ends, fatal, moments("gpu_reset"), seen=seen)


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    log = logged(evidence)
    if isinstance(log, Finding):
        yield log
    else:
        events = log.events or ()
        if log.unmatched:
            yield not_applicable(why=UNMATCHED.format(log.unmatched))
        about_gpus = [event for event in events if event.kind in ("xid", "off_bus")]
        context = context_of(events, seen_lines(evidence))
        yield from judge_gpus(evidence, log, about_gpus, params, context)
        switches = [event for event in events if event.kind == "sxid"]
        probed = {event.bus_id: event.last_s for event in events
                  if event.kind == "nvswitch_probe" and event.bus_id and event.last_s}  # fmt: skip
        yield from judge_switches(switches, probed, boot_time(evidence[HostInfo].data))


def judge_gpus(
    evidence: Evidence,
    log: KernelLog,
    events: Sequence[KernelEvent],
    params: Params,
    context: Context,
) -> Iterator[Finding]:
    (doubt, since), gone = covered(evidence, log), off_the_bus(evidence)
    begins = coverage(log)[1]
    gpus = located(evidence)
    at = by_address(events)
    join(evidence, gpus, at)
    booted = boot_time(evidence[HostInfo].data)
    nameless = [*faults(NODE, at.pop("", []), params, booted, context)]
    if nameless:
        doubt = "an Xid names no GPU"
        yield from nameless
    if not gpus:
        yield from (found for found in each_gpu(evidence) if isinstance(found, Finding))
    for gpu, loss in zip(gpus, losses(evidence), strict=True):
        off = loss is not None or gpu.bus_id in gone
        before = begins if off else ""
        why = f"it is lost, and the log covers only what happened {before}" if before else doubt
        events_of = at.get(gpu.bus_id or "", [])
        for found in judge_gpu(gpu, events_of, params, why, since, booted, context):
            yield msgspec.structs.replace(found, cause=LOSS) if off else found
            if found.verdict is Verdict.FAIL and doubt and not off:
                yield unknown(subject_of(gpu), why=doubt)
    for address in sorted(at.keys() - {gpu.bus_id for gpu in gpus}):
        subject = Subject(kind="pci", id=address, bus_id=address)
        details, here = {"bus id": address}, context.at(address)
        for found in faults(subject, at[address], params, booted, here, details):
            yield msgspec.structs.replace(found, cause=LOSS) if address in gone else found
    short = unlisted(evidence, at) if gpus else None
    if short is not None:
        yield short


def by_address(events: Sequence[KernelEvent]) -> dict[str, list[KernelEvent]]:
    """The events of each PCI address; those that name none under an empty one."""
    found: dict[str, list[KernelEvent]] = {}
    for event in events:
        found.setdefault(event.bus_id or "", []).append(event)
    return found


def join(evidence: Evidence, gpus: Sequence[Gpu], at: dict[str, list[KernelEvent]]) -> None:
    """Move lines that say "off the bus", and not of which GPU, to the one that is: the one that
    has the Xid of it, or else the only one that NVML or the PCI bus has lost."""
    spare = [event for event in at.get("", []) if event.kind == "off_bus"]
    where = {
        address
        for address, own in at.items()
        if any(event.kind == "xid" and event.code == OFF_BUS for event in own)
    }
    if not where and all(function.revision for function in gpu_functions(evidence)):
        where = {gpu.bus_id or "" for gpu in gpus if lost(gpu)} | off_the_bus(evidence)
    if len(where) == 1 and "" not in where and spare:
        at.setdefault(next(iter(where)), []).extend(spare)
        at[""] = [event for event in at[""] if event not in spare]


class Told(NamedTuple):
    """The events of one GPU: those that count, and those that a reset has ended."""

    now: list[KernelEvent]
    past: list[KernelEvent]
    ended: float  # when the last reset was that ended some
    old: list[KernelEvent]  # of the others, those that were there at the last look


def judge_gpu(
    gpu: Gpu,
    events: list[KernelEvent],
    params: Params,
    doubt: str,
    since: str,
    booted: float | None,
    context: Context,
) -> Iterator[Finding]:
    """`since`: what silence is about, where the log begins after boot."""
    subject, own = subject_of(gpu), context.of(gpu) if events else context
    found = [*faults(subject, events, params, booted, own, board(gpu))] if events else []
    if found:
        yield from found
    elif "handle" in gpu.errors:
        yield unknown(subject, why=f"NVML: {gpu.why('handle')}")
    elif gpu.bus_id is None:
        yield unread(subject, gpu, "bus_id")
    elif doubt:
        yield unknown(subject, why=doubt)
    elif not events:
        yield ok(subject, expected=[], actual=[], why=since)
    else:
        split = by_resets(events, own)
        old = known(split, booted, own)
        said = (told(split.now, booted), before(split, booted), *(old or (since,)))
        why = "; ".join(filter(None, said))
        yield ok(subject, expected=[], actual=[], why=why)


def number(event: KernelEvent) -> int | None:
    return OFF_BUS if event.kind == "off_bus" else event.code


def by_resets(events: Sequence[KernelEvent], context: Context) -> Told:
    """What happened since the last reset that ends it, and what before."""
    own = {cure: context.ends.get(cure) for cure in Cure}
    done = recovered(events)
    for cure in (Cure.RESET, Cure.LOAD):
        own[cure] = latest_of(own[cure], done)
    result = Told([], [], 0.0, [])
    for event in events:
        code = number(event)
        end = None if code is None else own[cure_of(code, context.architecture)]
        if code == RECOVERY and action(event) is Remedy.NOTHING:
            continue
        if end is None or event.last_s is None or event.last_s >= end:
            (result.old if context.known(event) else result.now).append(trimmed(event, end))
        else:
            result.past.append(event)
            result = result._replace(ended=max(end, result.ended))
    return result


def latest_of(*moments: float | None) -> float | None:
    return max((moment for moment in moments if moment is not None), default=None)


def trimmed(event: KernelEvent, end: float | None) -> KernelEvent:
    """An event without what is before `end`."""
    times = tuple(moment for moment in event.times_s if end is None or moment >= end)
    if len(times) == len(event.times_s):
        return event
    count = len(times) or None
    return msgspec.structs.replace(
        event, times_s=times, count=count, first_s=times[0] if times else event.last_s
    )


def recovered(events: Iterable[KernelEvent]) -> float | None:
    """When the driver said that no recovery is needed any more, if that was its last word."""
    own = [event for event in events if event.code == RECOVERY and event.kind == "xid"]
    done = latest_of(*(event.last_s for event in own if action(event) is Remedy.NOTHING))
    other = [event for event in own if action(event) is not Remedy.NOTHING]
    if done is None or any(event.last_s is None or event.last_s >= done for event in other):
        return None
    return done


def action(event: KernelEvent) -> Remedy | None:
    """What the driver itself recommends, in an Xid 154; None if that cannot be read."""
    digits = (event.detail or "").partition(" ")[0]
    try:
        number = int(digits, 16) if digits.startswith("0x") else None
    except ValueError:
        return None
    return None if number is None else BY_NUMBER.get(number, Remedy.SUPPORT)


def faults(
    subject: Subject,
    events: list[KernelEvent],
    params: Params,
    booted: float | None,
    context: Context,
    details: Mapping[str, str] = {},
) -> Iterator[Finding]:
    """What is to be said against these Xids, if anything. `details`: what identifies the board."""
    found = fault(subject, events, params, booted, context, details)
    if found:
        yield found
    unclear = next((event for event in events if number(event) is None), None)
    if unclear:
        yield unknown(subject, why=f"an Xid line that cannot be read: {unclear.text}")


def fault(
    subject: Subject,
    events: list[KernelEvent],
    params: Params,
    booted: float | None,
    context: Context,
    details: Mapping[str, str],
) -> Finding | None:
    split = by_resets(events, context)
    own = by_code(split.now)
    bad = {code: [e for e in same if counts(e, params)] for code, same in own.items()}
    often = [code for code in own if too_many(own[code], code, params, split, context)]
    bad.update({code: own[code] for code in often})
    bad = {code: same for code, same in bad.items() if same}
    if bad:
        roots = first_causes(bad, context.architecture or "")
        after = bad.keys() - set(roots)
        told_first = told([event for event in split.now if number(event) not in after], booted)
        told_then = told([event for event in split.now if number(event) in after], booted)
        why = f"{told_first}; then {told_then}" if told_then else told_first
        limits = [f"Xid {code} may come {told_limit(params, code)}" for code in sorted(bad)
                  if params.allowed(code) is not None]  # fmt: skip
        also = (context.together(own), before(split, booted), *known(split, booted, context))
        why = "; ".join(filter(None, [why, *limits, *also, stricter(roots, params)]))
        found = fail(
            subject,
            expected=[],
            actual=[name for code in roots for name in by_link(code, bad[code])],
            why=why,
            advice=advice(bad, context.architecture or ""),
            details={**details, **times_of(split.now, booted)},
            last=last_of(split.now, booted) or UNSET,
        )
        if set(roots) <= REMAPS | MEMORY:
            cause = REMAPPING if set(roots) <= REMAPS else ECC
            return msgspec.structs.replace(found, cause=cause)
        return found
    return None


def by_link(code: int, events: Iterable[KernelEvent]) -> list[Value]:
    """As `149 link 1`, one for each NVLink that the lines name; the number alone without."""
    named = (LINK.search(event.detail or "") for event in events if code in NVLINK5)
    links = sorted({int(match[1]) for match in named if match})
    return [f"{code} link {link}" for link in links] or [code]


def stricter(codes: Sequence[int], params: Params) -> str:
    """Where NVIDIA's own action for these is milder than a failure; empty if nowhere."""
    milder = [f"{MILD[code]} for {code}" for code in codes
              if code in MILD and params.allowed(code) is None]  # fmt: skip
    action = ", ".join(milder)
    return f"NVIDIA's action is {action}: `policy: nvidia` follows it" if milder else ""


def by_code(events: Iterable[KernelEvent]) -> dict[int, list[KernelEvent]]:
    found: dict[int, list[KernelEvent]] = {}
    for event in events:
        code = number(event)
        if code is not None:
            found.setdefault(code, []).append(event)
    return found


def counts(event: KernelEvent, params: Params) -> bool:
    """Whether it is a fault, however rare."""
    code = number(event)
    if code is None or params.tolerates(code) or params.allowed(code) is not None:
        return False
    if code in NVLINK5:
        return link_error(event.severity, event.detail).fatal
    return not (code == RECOVERY and action(event) is Remedy.NOTHING)


def too_many(
    events: Sequence[KernelEvent], code: int, params: Params, split: Told, context: Context
) -> bool:
    """Whether it came more often within the hours than the baseline allows, the last time of them
    since the last look."""
    most = params.allowed(code)
    if most is None:
        return False
    events = [*events, *(event for event in split.old if number(event) == code)]
    seen = context.seen.latest(events) if context.seen else -1.0
    if any(not event.times_s for event in events):
        return sum(most + 1 if event.count is None else event.count for event in events) > most
    moments = sorted(moment for event in events for moment in event.times_s)
    pairs = zip(moments, moments[most:], strict=False)
    return any(last - first <= params.hours * 3600 and last > seen for first, last in pairs)


def told_limit(params: Params, code: int) -> str:
    return f"at most {params.allowed(code)} times in {params.hours:g} h"


def first_causes(bad: Mapping[int, Sequence[KernelEvent]], architecture: str) -> list[int]:
    """The numbers that no other one explains, which came before it and asks for no less."""
    known = [code for code in bad if code in NAMES]
    first = {code: first_of(bad[code]) for code in known}
    rank = {code: remedy_of(code, architecture).rank for code in known}

    def explained(code: int) -> bool:
        return any(
            follows(code, root)
            and (rank[root] <= rank[code] or code == RECOVERY)
            and first[root] - EARLIER_S <= first[code]
            and (not follows_soon(code, root) or is_soon(first[code], bad[root]))
            and not (follows(root, code) and (first[code], code) < (first[root], root))
            for root in known
            if code in NAMES
        )

    return sorted(code for code in bad if not explained(code)) or sorted(bad)


def is_soon(moment: float, events: Iterable[KernelEvent]) -> bool:
    """Whether something came within CASCADE_S after one of these; so it is if it cannot be told."""
    times = [at for event in events for at in (event.first_s, event.last_s)]
    known = [at for at in times if at is not None]
    return not known or any(at - EARLIER_S <= moment <= at + CASCADE_S for at in known)


def first_of(events: Iterable[KernelEvent]) -> float:
    return min((event.first_s for event in events if event.first_s is not None), default=0.0)


def advice(bad: Mapping[int, Sequence[KernelEvent]], architecture: str) -> str:
    """The advice of the worst of these; what the driver recommends itself counts for its 154."""
    found = []
    for code, events in bad.items():
        own = {action(event) for event in events} if code == RECOVERY else set()
        found += [each for each in own if each] or [remedy_of(code, architecture)]
    return min(found, key=lambda remedy: remedy.rank).value


def before(split: Told, booted: float | None) -> str:
    if not split.past:
        return ""
    return f"before a reset {span(split.ended)} after boot: {told(split.past, booted)}"


def known(split: Told, booted: float | None, context: Context) -> tuple[str, ...]:
    """What was there at the last look and is no fault by now; nothing if there is none."""
    if not split.old or context.seen is None:
        return ()
    return (context.seen.before([told(split.old, booted)]),)


def last_of(events: Sequence[KernelEvent], booted: float | None) -> str:
    """When the last of them was logged, ISO 8601; empty if that is not known."""
    seconds = latest(events)
    return "" if seconds is None else at_uptime(booted, seconds)


def times_of(events: Sequence[KernelEvent], booted: float | None) -> dict[str, str]:
    """Of each number, if there are several, when it was logged last."""
    codes = sorted({code for code in map(number, events) if code is not None})
    last = {code: last_of([e for e in events if number(e) == code], booted) for code in codes}
    return {f"Xid {code}": f"last {at}" for code, at in last.items() if at and len(codes) > 1}


def told(
    events: Sequence[KernelEvent], booted: float | None, names: Mapping[int, str] = NAMES
) -> str:
    """As `79 GPU_HAS_FALLEN_OFF_THE_BUS ×2; 13 ...`; with times after boot, if `booted`, the time
    of that, is not known."""
    parts = []
    by_code: dict[int, list[KernelEvent]] = {}
    for event in events:
        by_code.setdefault(number(event) or 0, []).append(event)
    unread = by_code.pop(0, [])
    for code, same in sorted(by_code.items()):
        name = names.get(code, "unknown to nodevet" if names else "")
        said = said_of(code, same)
        parts.append(f"{code} {name}".rstrip() + times(same) + when(same, booted) + said)
    if unread:
        text = line_of(unread)
        shown = f": {text}" if text else ""
        parts.append(
            f"a line whose number cannot be read{times(unread)}{when(unread, booted)}{shown}"
        )
    return "; ".join(parts)


def said_of(code: int, same: Sequence[KernelEvent]) -> str:
    """What the lines of an Xid say further: the units of a link, the driver's recommendation."""
    if code in NVLINK5:
        words = [link_error(event.severity, event.detail).words for event in same]
    elif code == RECOVERY:
        words = [(event.detail or "").partition(" ")[2] for event in same]
    else:
        words = []
    said = list(dict.fromkeys(filter(None, words)))
    return f" ({', '.join(said)})" if said else ""


def times(same: Sequence[KernelEvent]) -> str:
    """How often, as ` ×2`. A loss has an Xid and further lines, which are no further loss."""
    counted = [event for event in same if event.kind != "off_bus"]
    if not counted:
        return " ×1"
    counts = [event.count for event in counted if event.count is not None]
    return f" ×{sum(counts)}" if counts else ""


def when(same: Sequence[KernelEvent], booted: float | None) -> str:
    seconds = latest(same)
    return "" if seconds is None or booted is not None else f", last {span(seconds)} after boot"


def latest(same: Sequence[KernelEvent]) -> float | None:
    """Of the last line, seconds after boot."""
    seconds = max((event.last_s for event in same if event.last_s is not None), default=None)
    return None if seconds is None or not 0 <= seconds < 1e10 else seconds


def judge_switches(
    events: Sequence[KernelEvent], probed: Mapping[str, float], booted: float | None
) -> Iterator[Finding]:
    """`probed`: when the driver took each switch last, which resets it, by address."""
    for address, own in sorted(by_address(events).items()):
        subject = Subject(kind="nvswitch", id=address, bus_id=address) if address else NODE
        end = probed.get(address, 0.0)
        serious = [event for event in own if event.severity != "nonfatal"]
        serious = [event for event in serious if event.last_s is None or event.last_s >= end]
        codes = sorted({event.code for event in serious if event.code is not None})
        why = told(own, booted, {})
        if codes:
            yield fail(
                subject,
                expected=[],
                actual=codes,
                why=f"SXid {why}",
                advice=SWITCH,
                last=last_of(serious, booted) or UNSET,
            )
        elif serious:
            yield unknown(subject, why=f"an SXid line that cannot be read: {serious[0].text}")
        elif any(event.severity != "nonfatal" for event in own):
            reset = f"before the switch was initialised {span(end)} after boot"
            yield not_applicable(subject, why=f"{reset}: SXid {why}")
        else:
            yield not_applicable(subject, why=f"non-fatal according to the driver: SXid {why}")


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *SEEN_LINES,
        "gpu.gpus[].bus_id",
        "gpu.gpus[].gpu_architecture",
        "pci.functions[].address",
        "pci.functions[].revision",
        "pci.functions[].driver",
        "kernel_log.complete",
        "kernel_log.covered_s",
        "kernel_log.since_s",
        "kernel_log.unmatched",
        "kernel_log.events[].bus_id",
        "kernel_log.events[].code",
        "kernel_log.events[].count",
        "kernel_log.events[].detail",
        "kernel_log.events[].kind",
        "kernel_log.events[].severity",
        "kernel_log.events[].times_s[]",
    ),
    judge=judge,
)
