"""The kernel has logged no uncorrected machine check since boot.

**Why it matters.** CPUs and memory report their own faults as machine checks. An uncorrected error
kills the process that it hits; repeated corrected errors point to a DIMM that will fail under load.

**Read from** the kernel log since boot: machine checks and the reports of EDAC and the firmware
(APEI), except PCIe errors, which `pcie_errors` judges. The severity comes from the machine check's
status (UC, PCC and AMD's deferred) or from the words of the line.

**Verdicts.** An uncorrected error fails. The report shows corrected errors; the check judges them
if the baseline sets a maximum, in total or per day since boot. The first day counts as a whole day.
The value names the CPU and bank, the memory controller or the DIMM if the line does, and a waiver
covers no other part. AMD's corrected errors and pages that were taken out of use are only counted.
A line that says only that something was logged is unknown, unless other lines say what. A line that
nodevet does not understand is unknown, too. Without such lines the check is ok only if the log has
no gap. If the beginning of the log is gone, the finding says when the log begins, as `xid` does.
Captured files without a kernel log are not applicable. If the firmware does not pass errors on,
only the BMC's log has them. With `--since` too many errors fail only if one came since the last
look. Corrected errors also fail if more came since then than chance allows at the baseline's rate
per day.

**To fix it** `ras-mc-ctl --errors`, `mcelog` or the BMC's event log name the DIMM or the CPU:
replace that part; some firmware repairs a row of memory at the next boot.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta
from msgspec.structs import replace

from nodevet.checking.log_events import in_brackets, line_detail
from nodevet.checking.named import reads_of
from nodevet.evidence.across import read_kernel_log
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel_log import KernelEvent, KernelLog, line_of
from nodevet.evidence.last_look import SEEN_LINES, Seen, coverage_since_look, seen_lines
from nodevet.model import Area, Check, CheckParams, Finding, NeededAction, fail, ok, unknown

NAME = "`ras-mc-ctl --errors`, `mcelog` or `ipmitool sel list` names the DIMM or CPU"
UNCORRECTED = (
    f"drain the node before its next job: {NAME}; save that and these lines for the RMA before a "
    "reboot clears the log, and replace the part"
)
CORRECTED = (
    f"{NAME}: if one part is named again and again, replace it at the next maintenance; errors of "
    "many parts at once point to the board or its power supply"
)

DAY = 86400.0  # seconds


class Params(CheckParams):
    """`machine_check: {}` or `machine_check: {corrected: 10, corrected_per_day: 50}`"""

    corrected: Annotated[int, Meta(ge=0)] | None = None
    """The most corrected errors since boot; if not set, they are not judged."""
    corrected_per_day: Annotated[float, Meta(ge=0)] | None = None
    """The most corrected errors per day since boot."""


class Logged(NamedTuple):
    """The machine checks of a log, by severity as far as it is known."""

    corrected: Sequence[KernelEvent]
    uncorrected: Sequence[KernelEvent]
    unclear: Sequence[KernelEvent]
    pointers: Sequence[KernelEvent]  # lines that only say that something was logged
    seen: Seen | None

    def has_new(self, events: Sequence[KernelEvent]) -> bool:
        """Whether any of these lines came since the last look; without a last look, whether there
        are any."""
        return bool(events) and not (self.seen and self.seen.has(*events))

    def came(self, events: Sequence[KernelEvent]) -> Iterator[KernelEvent]:
        """The events with lines since the last look, counted since then."""
        for event in events:
            grown = self.seen.came([event]) if self.seen else None
            if grown and grown.by:
                yield replace(event, count=grown.by)


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    log = read_kernel_log(evidence)
    if isinstance(log, Finding):
        yield log
        return
    logged_checks = by_severity(log.events or (), seen_lines(evidence))
    up, (doubt, since) = days(evidence, log), coverage_since_look(evidence, log)
    facts = [
        uncorrected_finding(logged_checks),
        corrected_finding(logged_checks, params, up),
        unclear_finding(logged_checks, params, up),
    ]
    yield from [fact for fact in facts if fact] or (
        unknown(why=doubt) if doubt else fine_finding(logged_checks, since),
    )


def by_severity(events: Sequence[KernelEvent], seen: Seen | None) -> Logged:
    checks = [event for event in events if event.kind == "mce"]
    corrected = [event for event in checks if event.severity == "corrected"]
    uncorrected = [event for event in checks if event.severity in ("nonfatal", "fatal")]
    clear = ("corrected", "nonfatal", "fatal")
    unclear = [event for event in checks if event.severity not in clear]
    pointers = [event for event in events if event.kind == "mce_logged"]
    return Logged(corrected, uncorrected, unclear, pointers, seen)


def days(evidence: Evidence, log: KernelLog) -> float | str:
    """Days since boot, or since the log begins, at least one; or why they are unknown."""
    host = evidence[HostInfo]
    if host.data is None:
        return f"host: {host.why}"
    if host.data.uptime_s is None or host.data.uptime_s < 0:
        return f"uptime_s: {host.data.why('uptime_s')}"
    seconds = host.data.uptime_s
    if log.complete is not True and log.covered_s is not None:
        seconds = min(seconds, log.covered_s)
    return max(1.0, seconds / DAY)


def uncorrected_finding(checks: Logged) -> Finding | None:
    """The failure, if there is an uncorrected error."""
    if not checks.has_new(checks.uncorrected):
        return None
    actual = f"uncorrected {events_text(checks.uncorrected)}"
    details = line_detail(checks.uncorrected)
    return fail(expected="none", actual=actual, advice=UNCORRECTED, details=details)


def corrected_finding(checks: Logged, params: Params, up: float | str) -> Finding | None:
    """The failure, if there are more corrected errors than are allowed. `up`: days that the log
    covers."""
    events, details = checks.corrected, line_detail(checks.corrected)
    most, grown = params.corrected_per_day, checks.seen.came(events) if checks.seen else None
    paced = grown.is_above(most, per=DAY) if grown and most is not None else None
    if grown and paced:
        fresh = in_brackets(checks.came(events))
        expected, actual = f"at most {most:g} corrected a day", f"corrected {grown.text}{fresh}"
        return fail(expected=expected, actual=actual, advice=CORRECTED, details=details)
    limits, count = limits_of(params, up, paced), line_count(events)
    if not limits or not checks.has_new(events):
        return None
    expected, least = min(limits.items(), key=lambda limit: limit[1])
    if count is not None and count <= least:
        return None
    actual = f"corrected {events_text(events)}"
    return fail(expected=expected, actual=actual, advice=CORRECTED, details=details)


def unclear_finding(checks: Logged, params: Params, up: float | str) -> Finding | None:
    """The unknown finding about lines of unclear severity; None if all are clear."""
    unclear = [event for event in checks.unclear if checks.has_new([event])]
    known = [*checks.corrected, *checks.uncorrected]
    if not unclear and checks.has_new(checks.pointers) and not checks.has_new(known):
        unclear = [*checks.pointers]
    if unclear:
        return unknown(why=f"unknown severity: {line_of(unclear)}", advice=NAME)
    if params.corrected_per_day is not None and checks.has_new(checks.corrected):
        return unknown(why=up) if isinstance(up, str) else None
    return None


def fine_finding(checks: Logged, since: str) -> Finding:
    """`since`: when the log begins, if it begins after boot."""
    actual = f"corrected {events_text(checks.corrected)}" if checks.corrected else "none"
    past = [f"uncorrected {events_text(checks.uncorrected)}"] if checks.uncorrected else []
    before = checks.seen.earlier_text(past) if checks.seen else ""
    return ok(expected="none", actual=actual, why=before or since)


def limits_of(params: Params, up: float | str, paced: bool | None) -> dict[str, float]:
    """The most corrected errors, by the text of the limit.

    `paced`: whether too many came per day since the last look; None: not known, so the mean since
    boot decides."""
    limits: dict[str, float] = {}
    if params.corrected is not None:
        limits[f"at most {params.corrected} corrected"] = params.corrected
    if params.corrected_per_day is not None and paced is None and not isinstance(up, str):
        most = params.corrected_per_day * up
        limits[f"at most {params.corrected_per_day:g} corrected a day: {most:.0f}"] = most
    return limits


def line_count(events: Sequence[KernelEvent]) -> int | None:
    counts = [event.count for event in events if event.count is not None and event.count > 0]
    return sum(counts) if len(counts) == len(events) else None


def events_text(events: Sequence[KernelEvent]) -> str:
    """The number of lines and their parts, as `×3 (CPU 0 bank 8 ×3)`; `×?` if it was not read."""
    return f"×{line_count(events) or '?'}{in_brackets(events)}"


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=(
        *SEEN_LINES,
        "earlier.kernel_log.complete",
        "earlier.kernel_log.events[].count",
        "host.uptime_s",
        *reads_of("kernel_log", "complete", "covered_s", "since_s"),
        *reads_of("kernel_log.events[]", "count", "kind", "severity"),
    ),
    judge=judge,
    actions={UNCORRECTED: NeededAction.RMA},
)
