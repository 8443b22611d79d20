"""Start or restart the fabric manager, if no GPU is registered with its fabric.

**Now** `systemctl restart nvidia-fabricmanager`, which also starts it; nodevet then waits until
every GPU is registered, up to `--boot-settle`.

**At every boot** `systemctl enable`, if the unit is disabled.

**Risk** drain: no CUDA program can start without the fabric, and none may run while the fabric
starts.

**Rollback** disables and stops the unit if it was disabled and stopped. GPUs that have registered
stay registered until the next reset or reboot.

**What it cannot do.** It does not restart the fabric manager while a GPU is registered: the GPUs
would keep the state of the old fabric, and NCCL's NVLS would fail. In this case drain the node,
stop the fabric manager, reset all GPUs together and start it again. It does not repair a fabric
that is unhealthy, a registration that ended with an error, or a lost NVLink domain of a rack. If
the package has another version than the driver, the fabric manager refuses to start: install the
driver's version first. If the start takes longer than `--deadline`, the step fails: raise
`--deadline`. The fix does not unmask a masked unit.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.fabric import UNIT, Params
from nodevet.evidence.across import answering_gpus
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import subject_of
from nodevet.fixing import gpus
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.fixing.units import RUNS, start_unit, unit_of
from nodevet.model import Finding
from nodevet.resource import Resource

UNREGISTERED = ("NOT_STARTED", "IN_PROGRESS")


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all GPUs that are not registered; see `FIX`."""
    if packages := [finding for finding in failed if finding.subject.kind == "package"]:
        raise FixError(
            f"{packages[0].subject.id} has version {packages[0].actual}, and the driver has "
            f"{packages[0].expected}: install the driver's version first"
        )
    unregistered = [finding for finding in failed if finding.actual in UNREGISTERED]
    if not unregistered:
        raise FixError("a restart of the fabric manager does not repair this")
    registered = [gpu for gpu in answering_gpus(evidence) if gpu.fabric.state == "COMPLETED"]
    if registered:
        raise FixError(
            f"{subject_of(registered[0]).label} is registered, and would keep the state of the old "
            "fabric: drain the node, stop the fabric manager, reset all GPUs together, start it"
        )
    unit = unit_of(evidence, UNIT)
    yield PlannedChange(
        expected="COMPLETED",
        actual=gpus.common_value({each.subject.label: each.actual for each in unregistered}),
        subjects=tuple(finding.subject.label for finding in unregistered),
        actions=(start_unit(unit),),
        resources=(Resource(kind="unit", name=UNIT),),
        risk=Risk.DRAIN,
        note="it runs already, and will be restarted" if unit.active_state in RUNS else "",
    )


FIX = Fix(
    plan=plan,
    risk=Risk.DRAIN,
    after=("services",),
    asks=lambda params: {"services": (UNIT,)},
)
"""After the fix of services, which may start the same unit."""
