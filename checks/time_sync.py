"""NTP or PTP keeps the kernel's clock right.

**Why it matters.** A clock that nothing corrects is right on the day of installation and seconds
off weeks later. Then nobody can put the logs of two nodes in order, services reject credentials and
`make` rebuilds the wrong files. `clock_skew` reports a wrong clock; this check warns before.

**Read from** adjtimex(2), without changing anything: STA_UNSYNC and the kernel's estimate of the
maximum error. chrony, ntpd, systemd-timesyncd and linuxptp all report to the kernel.

**Verdicts.** The check fails if the clock is not synchronised, or if the error may exceed the
baseline's maximum; between two corrections the possible error grows by half a millisecond per
second. On a node that booted less than five minutes ago an unsynchronised clock is unknown. chrony
reports to the kernel only with `rtcsync` in its configuration, which every distribution sets.

**To fix it** `chronyc tracking`, `timedatectl timesync-status` or `ntpq -p` shows whether the node
reaches a server; `systemctl enable --now chronyd` (Debian and Ubuntu: chrony) starts the service.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import ok_if, values_at
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel import UNSYNC, Kernel
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Severity,
    fail,
    ok,
    unknown,
)

YOUNG = 300.0  # seconds since boot
ERROR = 5  # TIME_ERROR
ADVICE = (
    "`systemctl status chrony chronyd systemd-timesyncd` shows which service should run, "
    "`chronyc sources` whether it reaches a server; with chrony also check that rtcsync is set"
)
SERVERS = (
    "look at the servers of the time client, which `chronyc sources` shows: a restart does not help"
)


class Params(CheckParams):
    """`time_sync: {}` or `time_sync: {maximum_error_ms: 1000}`"""

    maximum_error_ms: Annotated[float, Meta(gt=0)] | None = None
    """The largest possible error of the clock, by the kernel's estimate; if not set, not judged."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    values = values_at(evidence, (Kernel, "clock_status"), (Kernel, "clock_state"))
    yield values if isinstance(values, Finding) else judge_clock(evidence, params, *values)


def judge_clock(evidence: Evidence, params: Params, status: int, state: int) -> Finding:
    if status & UNSYNC or state >= ERROR:
        return unsynchronised_finding(uptime(evidence))
    if params.maximum_error_ms is None:
        return ok(expected="synchronised", actual="synchronised")
    values = values_at(evidence, (Kernel, "clock_maxerror_us"))
    return (
        values if isinstance(values, Finding) else judge_error(values[0], params.maximum_error_ms)
    )


def uptime(evidence: Evidence) -> float | None:
    host = evidence[HostInfo].data
    return host.uptime_s if host is not None else None


def unsynchronised_finding(up: float | None) -> Finding:
    if up is not None and 0 <= up < YOUNG:
        return unknown(why=f"not synchronised yet; booted {up:.0f} s ago")
    return fail(expected="synchronised", actual="not synchronised", advice=ADVICE)


def judge_error(error: int, most_ms: float) -> Finding:
    """`error`: microseconds, by the kernel's estimate."""
    if error < 0:
        return unknown(why=f"clock_maxerror_us: {error}")
    expected = f"at most {most_ms:g} ms off"
    actual = f"at most {round(error / 1000, 1):g} ms off"
    return ok_if(error <= most_ms * 1000, expected=expected, actual=actual, advice=SERVERS)


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        *reads_of("kernel", "clock_state", "clock_status", "clock_maxerror_us"),
        "host.uptime_s",
    ),
    judge=judge,
    unasked="for servers: on other nodes write time_sync: {} if NTP or PTP keeps the clock",
    severity=Severity.WARNING,
    actions={SERVERS: NeededAction.SITE},
)
