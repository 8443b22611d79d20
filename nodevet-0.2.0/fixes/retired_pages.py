"""Reset every GPU that has a pending page retirement (GPUs before Ampere).

**Now** nodevet stops what holds the GPU, resets the GPU, and starts what it stopped.
`nodevet explain row_remapping` has the details. With `--reboot` or `--power-cycle`, the step is a
reboot of the node instead.

**At every boot** nothing: a boot also completes a pending retirement.

**Risk** drain: no job may run on the node. A reboot has the risk reboot.

**Rollback** cannot undo it, and there is nothing to restore. The plan says `cannot be undone`.

**What it cannot do.** No reset restores retired pages: the fix refuses a GPU with more of them than
the baseline allows; have it replaced. The fix does not reload the driver, which would also complete
the retirement. If the retirement is still pending after the reset, the step fails: plan again with
`--reboot`, then with `--power-cycle`
([all remedies](../fixes.md#reset-reboot-power-cycle-a-person)). No test has reset a real GPU.
"""

from nodevet.fixing import gpu_reset
from nodevet.fixing.model import Fix, Risk
from nodevet.model import Finding


def obstacle(finding: Finding) -> str:
    """Why a reset does not repair a finding; empty if it does."""
    if isinstance(finding.actual, dict) and list(finding.actual) == ["pending"]:
        return ""
    return "no reset restores retired pages: have the GPU replaced (RMA)"


FIX = Fix(
    plan=gpu_reset.planner(obstacle),
    risk=Risk.REBOOT,
    options=("reboot",),
    after=("leftover_processes",),
    asks=gpu_reset.asks,
)
"""Before the fixes of settings, which a reset GPU forgets."""
