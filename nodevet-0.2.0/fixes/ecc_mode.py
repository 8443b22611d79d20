"""Switch ECC on or off on every GPU, as expected.

**Now** `nvidia-smi -i UUID -e 1` (or `-e 0`) for each GPU that fails: the mode is set and pending.
It takes effect at the next reboot, or reset of the GPU; the plan says `reboot`, because a GPU on an
NVLink fabric cannot be reset alone.

**At every boot** nothing is needed: the board keeps the mode in its InfoROM.

**Risk** reboot. The risk is only live if the current mode is as expected and another one is
pending: then the fix reverts the pending mode, and nothing changes.

**Rollback** sets the earlier mode, which is then pending: it takes another reboot.

**What it cannot do.** A GPU without ECC stays without it. Usable memory and bandwidth change
with the mode.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.ecc_mode import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpus
from nodevet.fixing.boot_unit import switch
from nodevet.fixing.gpus import FailedGpu
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.model import Finding


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """A change for the GPUs whose current mode fails, and another one for the GPUs whose pending
    mode fails."""
    _, failures = gpus.all_and_failed(evidence, findings)
    fixable, note = gpus.fixable(failures, gpus.obstacle_without("ecc_current", ("it has no ECC")))
    unchanged = tuple(
        failure for failure in fixable if failure.named.read("ecc_current") == params.enabled
    )
    changing = tuple(failure for failure in fixable if failure not in unchanged)
    if changing:
        yield change(changing, params.enabled, Risk.REBOOT, "reboot", note)
    if unchanged:
        yield change(unchanged, params.enabled, Risk.LIVE, "now", "" if changing else note)


def change(
    failures: Sequence[FailedGpu], enabled: bool, risk: Risk, effective: str, note: str
) -> PlannedChange:
    return gpus.change(
        gpus.as_modes(failures, enabled),
        options=lambda _: [switch("-e", enabled)],
        fields=lambda _: ["ecc_pending"],
        risk=risk,
        effective=effective,
        note=note,
    )


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=("mig_mode",))
