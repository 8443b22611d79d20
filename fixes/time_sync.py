"""Start the time client that the node has, and let it set the clock.

**Now** `systemctl restart` of the client, which also starts it: chrony, systemd-timesyncd, ntpsec,
ntp or openntpd. With chrony, `chronyc waitsync` then waits up to a minute for a server, and
`chronyc makestep` steps the clock. With the others, nodevet waits until the kernel calls the clock
synchronised, up to `--boot-settle`; ntpd may take longer than the default.

**At every boot** `systemctl enable`, if the unit is disabled.

**Risk** live: jobs continue, but programs that measure time see the clock step.

**Rollback** disables and stops the client if it was disabled and stopped. It does not set the clock
back, because the clock is right now.

**What it cannot do.** It installs no client and configures no servers: if the client reaches none,
nodevet rolls the step back. If two clients are installed, it does not choose: mask or remove one.
It does not change a node whose clock linuxptp sets (phc2sys), nor a masked client, because someone
masked it on purpose. It does not set chrony's `rtcsync`, without which the kernel never calls the
clock synchronised. If the clock is synchronised but its error is too large, nodevet plans nothing:
a restart does not help.
"""

from collections.abc import Iterator, Mapping, Sequence

from nodevet.checks.time_sync import Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.services import Unit
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.fixing.units import RUNS, start_unit, unit_of
from nodevet.model import Finding
from nodevet.resource import Resource, RunCommand

CHRONY = "chrony"
CLIENTS = {  # client -> its units; the first one is not an alias
    CHRONY: ("chrony.service", "chronyd.service"),
    "systemd-timesyncd": ("systemd-timesyncd.service",),
    "ntp": ("ntpsec.service", "ntp.service", "ntpd.service"),
    "openntpd": ("openntpd.service",),
}
PTP = "phc2sys.service"
TRIES, INTERVAL = 30, 2  # of chronyc waitsync, in seconds
STEP = (
    RunCommand(words=("chronyc", "waitsync", str(TRIES), "0", "0", str(INTERVAL)), seconds=90),
    RunCommand(words=("chronyc", "makestep")),
)


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that starts the client; see `FIX`."""
    if failed[0].expected != "synchronised":
        raise FixError("the clock is synchronised: look at the servers of the time client")
    if unit_of(evidence, PTP).active_state in RUNS:
        raise FixError(f"{PTP} sets the clock: look at its log")
    client, unit = installed_client(evidence)
    yield PlannedChange(
        expected=failed[0].expected,
        actual=failed[0].actual,
        actions=(start_unit(unit), *(STEP if client == CHRONY else ())),
        resources=(Resource(kind="unit", name=unit.name),),
        risk=Risk.LIVE,
        note="the clock may step",
    )


def installed_client(evidence: Evidence) -> tuple[str, Unit]:
    """The only time client of the node, and its unit. Raises FixError if there is none, or if there
    are several."""
    found = {
        client: unit
        for client, names in CLIENTS.items()
        if (unit := next((u for n in names if exists(u := unit_of(evidence, n))), None))
    }
    if not found:
        raise FixError("no time client is installed: install chrony")
    usable = {client: unit for client, unit in found.items() if unit.load_state != "masked"}
    if len(usable) > 1:
        raise FixError(f"{' and '.join(usable)} are installed: mask or remove all but one")
    return next(iter((usable or found).items()))


def exists(unit: Unit) -> bool:
    return unit.load_state != "not-found"


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """The units that may set the clock."""
    return {"services": (*(name for names in CLIENTS.values() for name in names), PTP)}


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("services",), asks=asks)
