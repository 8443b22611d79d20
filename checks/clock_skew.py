"""The node's clock is right, as far as the machine that asks can tell.

**Why it matters.** Logs of two nodes cannot be put in order, certificates and Kerberos
or munge credentials are refused, builds and checkpoints mistake old files for new ones.

**Read from** CLOCK_REALTIME on the node at the moment that the request reached the
probe, and the clock of the machine that runs nodevet when it sent it.

**Verdicts.** Wrong where the two differ by more than the baseline allows. The way of
the request, the start of Python on a busy node included, counts as if the node were
ahead by it, so a clock that is behind is seen later by as much: choose a maximum well
above it. Both clocks are judged as one pair: where every node is off by the same, it is
this machine that is wrong. A machine that vets itself is exempt: it has no other clock.

**To put it right** start chrony or systemd-timesyncd and let it reach its servers
(`chronyc tracking`, `timedatectl`); a virtual machine may need the hypervisor's clock.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import NO_OTHER_CLOCK, HostInfo
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

YEAR = 365 * 86400
HALF_HOUR = 1800  # seconds; time zones differ by as much
FARTHEST_ZONE = 14 * 3600
NEAR = 90  # seconds, of the way of the request and of drift
BATTERY = (
    "the clock began anew: the board's battery is empty, or the BIOS was reset and has lost its "
    "other settings too. Replace it, set the clock (`chronyc makestep`, `hwclock --systohc`)"
)
LOCAL_TIME = (
    "as a time zone is: the hardware clock is kept in local time; `timedatectl set-local-rtc 0`, "
    "then `hwclock --systohc` once the time is right"
)
DRIFTED = (
    "`chronyc sources` or `timedatectl timesync-status` shows whether it reaches a server. Step it "
    "(`chronyc makestep`) on a drained node, since jobs see the jump; if all nodes are off alike, "
    "it is this machine"
)


class Params(CheckParams):
    """`clock_skew: {}` or `clock_skew: 30`"""

    bare: ClassVar[str] = "maximum"

    maximum: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60
    """Seconds, ahead or behind."""


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
        actual = f"{abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"
        expected = f"at most {params.maximum:g} s off"
        if abs(skew) <= params.maximum:
            yield ok(expected=expected, actual=actual)
        else:
            yield fail(expected=expected, actual=actual, advice=advice(skew))


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
    reads=("host.clock_s", "host.asked_s"),
    judge=judge,
    severity=Severity.WARNING,
)
