"""Reset every GPU that has a pending row remap.

**Now** nodevet takes these steps:

1. It stops the services that hold the GPUs: nvidia-persistenced, nvidia-imex, nvsm and monitoring
   clients. It turns persistence mode off.
2. It runs `nvidia-smi --gpu-reset -i UUID` for each GPU with a pending remap, or (before Ampere)
   with a pending page retirement.
3. It turns persistence mode on again, and waits until the GPUs are registered with their fabric.
4. It starts the services again, and the boot units with which other fixes of nodevet set power
   limit, clocks and modes.

Some GPUs on NVLink can only be reset together: GPUs before Ampere, and Ampere GPUs on NVSwitches
while the fabric manager does not run. One command then resets all GPUs of the node, and the plan
names them. With `--reboot` or `--power-cycle`, the step is a reboot of the node instead.

**At every boot** nothing: a boot also completes a pending remap.

**Risk** drain: no job may run on the node. A reboot has the risk reboot.

**Rollback** cannot undo it, and there is nothing to restore. The plan says `cannot be undone`.

**What it cannot do.** A *failed* remap or a lack of spare rows needs a new board: the fix refuses
such a GPU. It also refuses a GPU with MIG devices, because a reset deletes them, and a GPU that
NVML does not reach. A reset deletes power limit, clocks and compute mode. If no unit of nodevet
sets them, they stay at their defaults until something else sets them; the plan names them. If the
remap is still pending after the reset, the step fails: plan again with `--reboot`, then with
`--power-cycle` ([all remedies](../fixes.md#reset-reboot-power-cycle-a-person)). No test has reset a
real GPU.
"""

from nodevet.fixing import gpu_reset
from nodevet.fixing.model import Fix, Risk
from nodevet.model import Finding


def obstacle(finding: Finding) -> str:
    """Why a reset does not repair a finding; empty if it does."""
    signs = list(finding.actual) if isinstance(finding.actual, dict) else []
    if "failure" in signs:
        return "a remap failed, which no reset repairs: have the GPU replaced (RMA)"
    return "" if signs == ["pending"] else "no reset restores spare rows: have the GPU replaced"


FIX = Fix(
    plan=gpu_reset.planner(obstacle),
    risk=Risk.REBOOT,
    options=("reboot",),
    after=("leftover_processes",),
    asks=gpu_reset.asks,
)
"""Before the fixes of settings, which a reset GPU forgets."""
