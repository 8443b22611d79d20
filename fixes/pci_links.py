"""Reboot a node with a NIC or drive whose PCIe link is slower or narrower than it can be.

**Now** nothing: such a link trains again only at a boot. The step is a reboot of the node. Only
`--reboot` or `--power-cycle` make nodevet reboot the node; without them, the step is `pending`
until someone reboots it.

**At every boot** nothing.

**Risk** reboot.

**Rollback** cannot undo a reboot, and there is nothing to restore.

**What it cannot do.** It plans nothing if `limited: false` and the port supports no more: then use
a faster slot. If the link is as slow as before, the step fails, and the report names the next
remedy: a power cycle, then a person who reseats the card or drive, its riser or its cable
([all remedies](../fixes.md#reset-reboot-power-cycle-a-person)).
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.pci_links import RETRAIN, Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import reboot
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.model import Finding


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One reboot for all links; see `FIX`."""
    yield reboot.retrain(evidence, failed, RETRAIN)


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=("gpu_lost",))
