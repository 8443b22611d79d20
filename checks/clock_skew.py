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

from nodevet.evidence import NO_OTHER_CLOCK, Evidence
from nodevet.model import NODE, Check, Finding, Severity, Want, exempt, ok, unknown, wrong


class ClockSkew(Want):
    """`clock_skew: {}` or `clock_skew: 30`"""

    bare: ClassVar[str] = "maximum"

    maximum: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60
    """Seconds, ahead or behind."""


def judge(evidence: Evidence, want: ClockSkew) -> Iterator[Finding]:
    host = evidence.host
    if host.data is None:
        yield unknown(why=f"host: {host.why}")
    elif host.data.asked_s is None:
        why = host.data.why("asked_s")
        yield (exempt if why == NO_OTHER_CLOCK else unknown)(NODE, why=f"asked_s: {why}")
    elif host.data.clock_s is None:
        yield unknown(why=f"clock_s: {host.data.why('clock_s')}")
    else:
        skew = host.data.clock_s - host.data.asked_s
        verdict = ok if abs(skew) <= want.maximum else wrong
        actual = f"{abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}"
        yield verdict(expected=f"at most {want.maximum:g} s off", actual=actual)


CHECK = Check(
    wants=ClockSkew,
    reads=("host.clock_s", "host.asked_s"),
    judge=judge,
    severity=Severity.WARNING,
)
