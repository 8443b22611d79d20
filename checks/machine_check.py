"""Since boot, the kernel logged no machine check of an error that was not corrected.

**Why it matters.** A machine check is how CPU and memory report their own faults. An error
that could not be corrected killed what it met, or will; corrected ones that keep coming
announce a DIMM that fails under load.

**Read from** the kernel log since boot: machine checks, and what EDAC and the firmware (APEI)
report. Severities are those of the machine check's status, UC and PCC, or the line's words.

**Verdicts.** An uncorrected error is wrong. Corrected ones are shown, and judged where the
baseline gives the most lines that are allowed. Lines that only say that something was logged
are unknown, unless others tell what. Without such lines it is ok only where the log is
complete since boot, else unknown. Captured files without a kernel log are exempt. Errors that
a firmware keeps to itself are in the BMC's log only.

**To put it right** `ras-mc-ctl --errors`, `mcelog` or the BMC's event log name the DIMM or
the CPU: have it replaced; some firmware repairs a row of memory at the next boot.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from nodevet.evidence import Evidence, KernelEvent, line_of, logged
from nodevet.model import Check, Finding, Want, ok, unknown, wrong

NAME = "`ras-mc-ctl --errors`, `mcelog` or `ipmitool sel list` names the DIMM or CPU"
UNCORRECTED = (
    f"drain the node before its next job: {NAME}; keep that and these lines for the RMA, have it "
    "replaced, and only then let a reboot clear the log"
)
CORRECTED = (
    f"{NAME}: if one is named again and again, replace it in the next maintenance; errors of many "
    "parts at once are the board's or its supply's"
)


class MachineCheck(Want):
    """`machine_check: {}` or `machine_check: {corrected: 10}`"""

    corrected: Annotated[int, Field(ge=0)] | None = None
    """The most lines about corrected errors since boot; without it they are not judged."""


def judge(evidence: Evidence, want: MachineCheck) -> Iterator[Finding]:
    log = logged(evidence)
    if isinstance(log, Finding):
        yield log
    else:
        events = [event for event in log.events or () if event.kind == "mce"]
        doubt = "" if log.complete is True else log.why("complete")
        yield judge_events(events, want, doubt)


def judge_events(events: Sequence[KernelEvent], want: MachineCheck, doubt: str) -> Finding:
    """`doubt`: why the log may not hold all lines since boot."""
    corrected = [event for event in events if event.severity == "corrected"]
    worse = [event for event in events if event.severity in ("nonfatal", "fatal")]
    if worse:
        actual = f"uncorrected {told(worse)}"
        return wrong(expected="none", actual=actual, why=line_of(worse), advice=UNCORRECTED)
    count = lines(corrected)
    if want.corrected is not None and corrected and (count is None or count > want.corrected):
        return wrong(
            expected=f"at most {want.corrected} corrected",
            actual=f"corrected {told(corrected)}",
            why=line_of(corrected),
            advice=CORRECTED,
        )
    if len(corrected) < len(events) and not corrected:
        return unknown(why=f"it is not said how bad it was: {line_of(events)}", advice=NAME)
    if doubt:
        return unknown(why=doubt)
    return ok(expected="none", actual=f"corrected {told(corrected)}" if corrected else "none")


def lines(events: Sequence[KernelEvent]) -> int | None:
    counts = [event.count for event in events if event.count is not None and event.count > 0]
    return sum(counts) if len(counts) == len(events) else None


def told(events: Sequence[KernelEvent]) -> str:
    """How often, as `×3`; an unread number as `×?`."""
    return f"×{lines(events) or '?'}"


CHECK = Check(
    wants=MachineCheck,
    reads=(
        "kernel_log.complete",
        "kernel_log.events[].count",
        "kernel_log.events[].kind",
        "kernel_log.events[].severity",
    ),
    judge=judge,
)
