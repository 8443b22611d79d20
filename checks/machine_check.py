"""The kernel has logged no uncorrected machine check since boot.

**Why it matters.** CPUs and memory report their own faults as machine checks. An uncorrected
error kills the process that it hits; corrected ones that keep coming point to a DIMM that will
fail under load.

**Read from** the kernel log since boot: machine checks, and what EDAC and the firmware (APEI)
report, except PCIe errors, which `pcie_errors` judges. Severities are those of the machine check's
status, UC, PCC and AMD's deferred, or the line's words.

**Verdicts.** An uncorrected error fails. Corrected ones are shown, and judged if the baseline
gives the most that is allowed, in all or for each day since boot; the first day counts whole.
Lines that only say that something was logged are unknown, unless others tell what, and so is a
line that is not understood. Without such lines it is ok only if the log has no gap, and says
since when if its beginning is gone, as `xid` does. Captured files without a kernel log are not
applicable. Errors that the firmware does not pass on are in the BMC's log only. With `--since` what
is too much fails only if a line of it came since the last look, and so do more corrected ones than
chance allows by what the baseline allows for each day.

**To fix it** `ras-mc-ctl --errors`, `mcelog` or the BMC's event log name the DIMM or the CPU:
have it replaced; some firmware repairs a row of memory at the next boot.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from nodevet.evidence.across import logged
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel_log import KernelEvent, KernelLog, line_of
from nodevet.evidence.last_look import SEEN_LINES, Seen, covered, seen_lines
from nodevet.model import Area, Check, CheckParams, Finding, fail, ok, unknown

NAME = "`ras-mc-ctl --errors`, `mcelog` or `ipmitool sel list` names the DIMM or CPU"
UNCORRECTED = (
    f"drain the node before its next job: {NAME}; keep that and these lines for the RMA, and "
    f"have it replaced before a reboot clears the log"
)
CORRECTED = (
    f"{NAME}: if one is named again and again, replace it in the next maintenance; errors of many "
    "parts at once are the board's or its supply's"
)

DAY = 86400.0  # seconds


class Params(CheckParams):
    """`machine_check: {}` or `machine_check: {corrected: 10, corrected_per_day: 50}`"""

    corrected: Annotated[int, Meta(ge=0)] | None = None
    """The most corrected errors since boot; without it they are not judged."""
    corrected_per_day: Annotated[float, Meta(ge=0)] | None = None
    """The same, for each day since boot."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    log = logged(evidence)
    if isinstance(log, Finding):
        yield log
    else:
        events = [event for event in log.events or () if event.kind in ("mce", "mce_logged")]
        seen, coverage = seen_lines(evidence), covered(evidence, log)
        yield judge_events(events, params, days(evidence, log), seen, *coverage)


def days(evidence: Evidence, log: KernelLog) -> float | str:
    """Days since boot, or since the log begins, at least one; or why they cannot be told."""
    host = evidence[HostInfo]
    if host.data is None:
        return f"host: {host.why}"
    if host.data.uptime_s is None or host.data.uptime_s < 0:
        return f"uptime_s: {host.data.why('uptime_s')}"
    seconds = host.data.uptime_s
    if log.complete is not True and log.covered_s is not None:
        seconds = min(seconds, log.covered_s)
    return max(1.0, seconds / DAY)


def judge_events(
    events: Sequence[KernelEvent],
    params: Params,
    up: float | str,
    seen: Seen | None,
    doubt: str,
    since: str,
) -> Finding:
    """`up`: days that the log covers; `doubt`: why it may not hold all lines of them; `since`:
    since when it does, where it begins after boot."""

    def new(some: Sequence[KernelEvent]) -> bool:
        return bool(some) and not (seen and seen.has(*some))

    told_of = [event for event in events if event.kind == "mce"]
    corrected = [event for event in told_of if event.severity == "corrected"]
    worse = [event for event in told_of if event.severity in ("nonfatal", "fatal")]
    if new(worse):
        actual = f"uncorrected {told(worse)}"
        return fail(expected="none", actual=actual, advice=UNCORRECTED, details=logs(worse))
    most, grown = params.corrected_per_day, seen.came(corrected) if seen else None
    paced = grown.is_above(most, per=DAY) if grown and most is not None else None
    if grown and paced:
        return fail(
            expected=f"at most {most:g} corrected a day",
            actual=f"corrected {grown.text}",
            advice=CORRECTED,
            details=logs(corrected),
        )
    limits = allowed(params, up, paced)
    count = lines(corrected)
    least = min(limits.values(), default=None)
    if new(corrected) and least is not None and (count is None or count > least):
        return fail(
            expected=next(text for text, most in limits.items() if most == least),
            actual=f"corrected {told(corrected)}",
            advice=CORRECTED,
            details=logs(corrected),
        )
    unclear = [event for event in told_of if event not in corrected]
    unclear = [event for event in unclear if new([event]) and event not in worse]
    if unclear:
        return unknown(why=f"its severity is not known: {line_of(unclear)}", advice=NAME)
    only = [event for event in events if event.kind == "mce_logged"]
    if new(only) and not new(corrected):
        return unknown(why=f"its severity is not known: {line_of(only)}", advice=NAME)
    if params.corrected_per_day is not None and new(corrected) and isinstance(up, str):
        return unknown(why=up)
    if doubt:
        return unknown(why=doubt)
    actual = f"corrected {told(corrected)}" if corrected else "none"
    before = seen.before([f"uncorrected {told(worse)}"] if worse else []) if seen else ""
    return ok(expected="none", actual=actual, why=before or since)


def allowed(params: Params, up: float | str, paced: bool | None) -> dict[str, float]:
    """The most corrected errors that are allowed, by how that is said. `paced`: whether they were
    too many a day since the last look; None: not known, so by the mean since boot."""
    found: dict[str, float] = {}
    if params.corrected is not None:
        found[f"at most {params.corrected} corrected"] = params.corrected
    if params.corrected_per_day is not None and paced is None and not isinstance(up, str):
        most = params.corrected_per_day * up
        found[f"at most {params.corrected_per_day:g} corrected a day: {most:.0f}"] = most
    return found


def lines(events: Sequence[KernelEvent]) -> int | None:
    counts = [event.count for event in events if event.count is not None and event.count > 0]
    return sum(counts) if len(counts) == len(events) else None


def logs(events: Sequence[KernelEvent]) -> dict[str, str]:
    line = line_of(events)
    return {"kernel log": line} if line else {}


def told(events: Sequence[KernelEvent]) -> str:
    """How often, as `×3`; an unread number as `×?`."""
    return f"×{lines(events) or '?'}"


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=(
        *SEEN_LINES,
        "earlier.kernel_log.complete",
        "earlier.kernel_log.events[].count",
        "host.uptime_s",
        "kernel_log.complete",
        "kernel_log.covered_s",
        "kernel_log.since_s",
        "kernel_log.events[].count",
        "kernel_log.events[].kind",
        "kernel_log.events[].severity",
    ),
    judge=judge,
)
