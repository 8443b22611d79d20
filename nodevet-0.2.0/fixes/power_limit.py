"""Set every GPU's power limit to the expected one, now and at every boot.

**Now** `nvidia-smi -i UUID -pl WATTS` for each GPU whose limit fails. nodevet checks the watts
against the board's range, as NVML reports it.

**At every boot** the unit `nodevet-power-limit.service` sets the limit of every GPU of the node,
after nvidia-persistenced and the fabric manager and before slurmd and the kubelet. It is the only
manager of the setting. If one GPU fails, the unit still sets the others, and ends as failed.

**Risk** live: clocks under load change at once, jobs continue.

**Rollback** restores the earlier limits, and removes the unit or restores the earlier one.

**What it cannot do.** With persistence mode off the driver loses the limit when the GPU's last
client exits; the plan says so, and `persistence_mode` comes first. The fix does not raise a limit
that another limiter (BMC, module, power brake) holds lower. nodevet refuses watts that the board
does not allow: the baseline is for another board. If a GPU of the node does not respond, nodevet
refuses the whole node, because the unit sets every GPU.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.power_limit import Params, watts
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpus
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.gpus import NamedGpu
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, join_notes
from nodevet.model import Finding

BOOT = BootUnit("power_limit")


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change of all GPUs that fail; see `FIX`."""
    every_gpu, failed = gpus.all_and_failed(evidence, findings)
    limits = {
        gpu.uuid: limit(gpu, params) for gpu in gpus.having_setting(every_gpu, "power_limit_mw")
    }

    def obstacle(gpu: NamedGpu) -> str:
        mw = limits.get(gpu.uuid)
        if mw is None:
            return "its power limit cannot be set"
        if abs(gpu.read("power_limit_mw") - mw) > params.slack_mw(mw):
            return ""
        return "its limit is set as expected, but another limiter holds it lower"

    failed, note = gpus.fixable(failed, obstacle)
    yield gpus.change(
        failed,
        options=lambda gpu: [words(limits[gpu.uuid])],
        fields=lambda _: ["power_limit_mw"],
        risk=Risk.LIVE,
        owner=BOOT,
        boot=[(uuid, words(mw)) for uuid, mw in limits.items()],
        note=join_notes(note, gpus.forgetting_note(failed, "power limit")),
    )


def limit(gpu: NamedGpu, params: Params) -> int:
    """In milliwatts. Raises FixError if the board does not allow it, or does not report its
    range."""
    low, high = gpu.read("power_limit_min_mw"), gpu.read("power_limit_max_mw")
    if params.watts == "default":
        mw = gpu.read("power_limit_default_mw")
    else:
        mw = round(params.watts * 1000)
    if not 0 < low <= mw <= high:
        raise FixError(
            f"{gpu.label}: {watts(mw):g} W is expected, but this board allows "
            f"{watts(low):g}-{watts(high):g} W: is the baseline for another board?"
        )
    return mw


def words(mw: int) -> tuple[str, ...]:
    """
    >>> words(700_000), words(387_500)
    (('-pl', '700'), ('-pl', '387.5'))
    """
    return ("-pl", f"{watts(mw):.10g}")


FIX = Fix(plan=plan, risk=Risk.LIVE, after=(*BOOT.after, "compute_mode"))
