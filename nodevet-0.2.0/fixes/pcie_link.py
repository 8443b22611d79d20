"""Reboot a node with a PCIe link that is slower or narrower than the GPU and its ports support.

**Now** nothing: such a link trains again only at a boot. The step is a reboot of the node. Only
`--reboot` or `--power-cycle` make nodevet reboot the node; without them, the step is `pending`
until someone reboots it.

**At every boot** nothing.

**Risk** reboot.

**Rollback** cannot undo a reboot, and there is nothing to restore.

**What it cannot do.** It plans nothing if the board or a port of the slot does not support more, if
all GPUs are too slow, or in a virtual machine: then the check's advice says where to look. If the
link is as slow as before, the step fails, and the report names the next remedy: a power cycle, then
a person who reseats the GPU, its riser or its cable
([all remedies](../fixes.md#reset-reboot-power-cycle-a-person)).
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.pcie_link import RETRAIN, Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import reboot
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One reboot for all links that may train better. Raises FixError if a reboot
    does not help one of them."""
    others = [finding for finding in failed if not finding.advice.startswith(RETRAIN)]
    if others:
        label = others[0].subject.label or "the node"
        raise FixError(f"{label}: no reboot helps: {others[0].advice or others[0].why}")
    yield reboot.change(evidence, failed)


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=("gpu_lost",))
