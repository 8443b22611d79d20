"""Reset every GPU that has a pending row remap.

**Now** `nvidia-smi --gpu-reset -i UUID` for each GPU with a pending remap, and with a pending page
retirement on GPUs before Ampere. If NVLink connects GPUs that can only be reset together (before
Ampere; on the NVSwitches of Ampere without a running fabric manager), one command resets all GPUs
of the node; the plan says so. Before that nodevet stops what holds the GPUs: nvidia-persistenced,
nvidia-imex, nvsm and monitoring clients. It turns persistence mode off and on again. Afterwards it
waits until the fabric has the GPUs, and starts the services again and the boot units with which
other fixes set power limit, clocks and modes.

**At every boot** nothing: a boot completes a pending remap too.

**Risk** drain: no job may run on the node.

**Rollback** cannot undo it: nothing is left to restore. The approval says so.

**What it cannot do.** A *failed* remap and used up spare rows need a new board: the fix refuses
such a GPU. It refuses a GPU with MIG devices, which a reset deletes, and a GPU that NVML does not
reach. Settings that something other than a unit of nodevet set are lost until that sets them again;
the plan says so. If the remap is still pending afterwards, the step fails: reboot the node, then
power it off and on.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.row_remapping import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpu_reset
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.model import Finding


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that resets all GPUs with a pending remap; see `FIX`."""
    yield from gpu_reset.changes(evidence, failed, obstacle)


def obstacle(finding: Finding) -> str:
    """Why a reset does not repair a finding; empty if it does."""
    signs = list(finding.actual) if isinstance(finding.actual, dict) else []
    if "failure" in signs:
        return "a remap failed, which no reset repairs: have the GPU replaced (RMA)"
    return "" if signs == ["pending"] else "no reset restores spare rows: have the GPU replaced"


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("leftover_processes",), asks=gpu_reset.asks)
"""Before the fixes of settings, which a reset GPU forgets."""
