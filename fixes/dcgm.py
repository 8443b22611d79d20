"""Restart DCGM's host engine, if it counts fewer GPUs than NVML.

**Now** `systemctl restart` of nvidia-dcgm.service, or of dcgm.service from older packages; nodevet
then waits until DCGM counts as many GPUs as NVML, up to `--boot-settle`.

**At every boot** `systemctl enable`, if the unit is disabled.

**Risk** drain: a diagnostic or a recording of DCGM ends, and jobs may depend on its metrics.

**Rollback** disables the unit if it was disabled. The unit keeps running, as before the step: the
engine cannot return to its old view of the node.

**What it cannot do.** If DCGM counts more GPUs than NVML, a GPU was lost: a restart would only make
DCGM forget it, so nodevet refuses; see `gpu_count`. It repairs nothing that DCGM's watches or its
diagnostic report. It does not unmask a masked unit, and does not restart a host engine that runs
outside these units, for example in a container.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.dcgm import Params
from nodevet.evidence.dcgm import Dcgm
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.fixing.units import RUNS, first_existing_unit, start_unit
from nodevet.model import Finding
from nodevet.resource import Resource

UNITS = ("nvidia-dcgm.service", "dcgm.service")


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that restarts the host engine; see `FIX`."""
    counts = [finding for finding in failed if finding.subject.id == "GPUs"]
    if not counts:
        raise FixError("a restart of DCGM does not repair this")
    nvml, dcgm = evidence[Gpus].data, evidence[Dcgm].data
    if nvml is None or dcgm is None or nvml.count is None or dcgm.gpus is None:
        raise FixError("the finding does not come from this evidence")
    if dcgm.gpus > nvml.count:
        raise FixError(
            f"DCGM knows {dcgm.gpus} GPUs and NVML lists {nvml.count}: a GPU was lost, and after a "
            "restart DCGM would not know it either; see gpu_count"
        )
    unit = first_existing_unit(evidence, UNITS)
    restart = start_unit(unit)
    if unit.active_state not in RUNS:
        raise FixError(f"{unit.name} does not run: another host engine answered")
    yield PlannedChange(
        expected=counts[0].expected,
        actual=counts[0].actual,
        subjects=(counts[0].subject.label,),
        actions=(restart,),
        resources=(Resource(kind="unit", name=unit.name),),
        risk=Risk.DRAIN,
    )


FIX = Fix(
    plan=plan,
    risk=Risk.DRAIN,
    after=("services", "fabric"),
    asks=lambda params: {"services": UNITS},
)
"""After the fabric, which DCGM watches too."""
