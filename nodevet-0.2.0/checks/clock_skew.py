"""The node's clock agrees with the controller's.

**Why it matters.** If clocks differ, the log lines of two nodes cannot be put in order, services
reject certificates and Kerberos or munge credentials, and builds and checkpoints mistake old files
for new ones.

**Read from** CLOCK_REALTIME on the node when the request reached the probe, and the controller's
clock when it sent the request.

**Verdicts.** Fails if the two clocks differ by more than the baseline allows. The request takes
some time to reach the probe, including the start of Python on a busy node, and this time makes the
node's clock look ahead: choose a maximum well above it. Only the difference is known: if every node
is off by the same amount, the controller's clock is wrong. A machine that checks itself has no
other clock to compare with, so it is not applicable.

**To fix it** start chrony or systemd-timesyncd and let it reach its servers (`chronyc tracking`,
`timedatectl`); a virtual machine may need the hypervisor's clock.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import ok_if
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import NO_OTHER_CLOCK, HostInfo
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Severity, not_applicable, unknown

YEAR = 365 * 86400
HALF_HOUR = 1800  # seconds; time zones differ by as much
FARTHEST_ZONE = 14 * 3600
NEAR = 90  # seconds: covers the time of the request and drift
BATTERY = (
    "the clock was reset: the CMOS battery is empty, or the BIOS was reset and lost its other "
    "settings too. Replace the battery, check the BIOS, set the clock (`chronyc makestep`, "
    "`hwclock --systohc`)"
)
LOCAL_TIME = (
    "a whole time zone: the hardware clock is in local time; `timedatectl set-local-rtc 0`, "
    "then `hwclock --systohc` once the time is right"
)
DRIFTED = (
    "`chronyc sources` or `timedatectl timesync-status` shows whether the node reaches a time "
    "server. Step the clock (`chronyc makestep`) on a drained node, because jobs would see the "
    "jump; if all nodes are off by the same amount, the controller's clock is wrong"
)


class Params(CheckParams):
    """`clock_skew: {}` or `clock_skew: 30`"""

    bare: ClassVar[str] = "maximum"

    maximum: Annotated[float, Meta(gt=0)] = 60
    """The largest allowed difference in seconds, ahead or behind."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    host = evidence[HostInfo]
    if host.data is None:
        yield unknown(why=f"host: {host.why}")
    elif host.data.asked_s is None:
        why = host.data.why("asked_s")
        yield (not_applicable if why == NO_OTHER_CLOCK else unknown)(NODE, why=f"asked_s: {why}")
    elif host.data.clock_s is None:
        yield unknown(why=f"clock_s: {host.data.why('clock_s')}")
    else:
        skew = host.data.clock_s - host.data.asked_s
        yield ok_if(
            abs(skew) <= params.maximum,
            expected=f"at most {params.maximum:g} s off",
            actual=f"{abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}",
            advice=advice(skew),
        )


def advice(skew: float) -> str:
    hours = round(skew / HALF_HOUR) * HALF_HOUR
    if abs(skew) > YEAR:
        return BATTERY
    if hours and abs(skew - hours) < NEAR and abs(hours) <= FARTHEST_ZONE:
        return f"it is off by {abs(hours) / 3600:g} h, {LOCAL_TIME}"
    return DRIFTED


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=reads_of("host", "clock_s", "asked_s"),
    judge=judge,
    severity=Severity.WARNING,
)
