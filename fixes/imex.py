"""Enable and start nvidia-imex.

**Now** `systemctl restart nvidia-imex`, which also starts it. The unit must then stay active.

**At every boot** `systemctl enable`, if the unit is disabled.

**Risk** drain: a job that uses the memory of other nodes loses it while IMEX restarts.

**Rollback** disables and stops the unit if it was disabled and stopped.

**What it cannot do.** It does not write the list of peers: nodevet does not know which nodes are in
the domain. As long as /etc/nvidia-imex/nodes_config.cfg fails the check, it does not start IMEX,
which would join the wrong domain. It creates no channel, and does not bring a node back into a
domain that the node lost. It does not unmask a masked unit. If Kubernetes or a prolog starts IMEX,
set `service: false` in the baseline.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.imex import UNIT, Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.imex import Imex
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.fixing.units import start_unit, unit_of
from nodevet.model import Finding
from nodevet.resource import Resource

OTHERS = {
    "nodes": "the list of peers is wrong: write /etc/nvidia-imex/nodes_config.cfg first",
    "domain": "its GPUs are not all in one NVLink domain: see `fabric`",
}
"""Why IMEX may not start while another part of the check fails."""


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that starts the unit; see `FIX`."""
    stopped = [finding for finding in failed if finding.subject.id == UNIT]
    if not stopped:
        raise FixError("a restart of nvidia-imex does not repair this")
    for finding in failed:
        if why := OTHERS.get(finding.subject.id):
            raise FixError(why)
    imex = evidence[Imex].data
    if imex is None or imex.nodes is None:
        why = imex.why("nodes") if imex else evidence[Imex].why
        raise FixError(f"the list of peers was not read: {why}")
    if not imex.nodes:
        raise FixError(OTHERS["nodes"])
    yield PlannedChange(
        expected=stopped[0].expected,
        actual=stopped[0].actual,
        subjects=(stopped[0].subject.label,),
        actions=(start_unit(unit_of(evidence, UNIT)),),
        resources=(Resource(kind="unit", name=UNIT),),
        risk=Risk.DRAIN,
        note=f"it joins the domain of {len(imex.nodes)} addresses in its list",
    )


FIX = Fix(
    plan=plan,
    risk=Risk.DRAIN,
    after=("services", "fabric"),
    asks=lambda params: {"services": (UNIT,)},
)
"""After the fabric: IMEX joins the domain in which the fabric has the GPUs."""
