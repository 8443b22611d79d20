"""Reset every GPU that has a pending repair of a memory channel or a TPC.

**Now** nodevet stops what holds the GPU, resets the GPU, and starts what it stopped.
`nodevet explain row_remapping` has the details. With `--reboot` or `--power-cycle`, the step is a
reboot of the node instead.

**At every boot** nothing: a boot also completes a pending repair.

**Risk** drain: no job may run on the node. A reboot has the risk reboot.

**Rollback** cannot undo it, and there is nothing to restore. The plan says `cannot be undone`.

**What it cannot do.** No reset repairs *unrepairable memory*: the fix refuses such a GPU; have it
replaced. If the repair is still pending after the reset, the step fails: plan again with
`--reboot`, then with `--power-cycle`
([all remedies](../fixes.md#reset-reboot-power-cycle-a-person)). No test has reset a real GPU.
"""

from nodevet.fixing import gpu_reset
from nodevet.fixing.model import Fix, Risk
from nodevet.model import Finding


def obstacle(finding: Finding) -> str:
    """Why a reset does not repair a finding; empty if it does."""
    signs = finding.actual if isinstance(finding.actual, dict) else {}
    if signs.keys() and signs.keys() <= {"channel_pending", "tpc_pending"}:
        return ""
    return "its memory is unrepairable: have the GPU replaced (RMA)"


FIX = Fix(
    plan=gpu_reset.planner(obstacle),
    risk=Risk.REBOOT,
    options=("reboot",),
    after=("leftover_processes",),
    asks=gpu_reset.asks,
)
"""Before the fixes of settings, which a reset GPU forgets."""
