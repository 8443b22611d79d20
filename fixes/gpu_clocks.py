"""Set every GPU's application and locked clocks to the expected ones, now and at every boot.

**Now** `nvidia-smi -i UUID -ac MEMORY,GRAPHICS` for each GPU whose application clocks
fail. Both are set together: one that the baseline does not name stays as it is.
`nvidia-smi -lgc MHZ,MHZ` and `-lmc MHZ,MHZ` lock.

**At every boot** the unit `nodevet-gpu-clocks.service` sets the clocks of every GPU of the node,
after nvidia-persistenced and before slurmd and the kubelet; an application clock that the
baseline does not name is then at its default. It is the one manager of the setting; if one
GPU fails, the others are still set, and the unit ends as failed.

**Risk** live: jobs go on, and get slower or faster.

**Rollback** restores the earlier clocks, and removes the unit or restores the earlier one.

**What it cannot do.** Clocks are locked only where the driver tells which ones are: no driver
known does, and a lock that cannot be read can neither be verified nor restored. nvidia-smi
refuses a pair that the GPU does not have (`nvidia-smi -q -d SUPPORTED_CLOCKS`). With persistence
mode off the driver forgets the clocks when the GPU's last client leaves; the plan says so, and
`persistence_mode` comes first. A node with a GPU that does not respond, or does not
tell its clocks, is refused as a whole, since the unit sets every GPU.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.gpu_clocks import Params, fields, reference
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpus
from nodevet.fixing.boot_unit import MODES, BootUnit, Words
from nodevet.fixing.gpus import Named
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding

APPLICATION = ("app_clock_memory_mhz", "app_clock_graphics_mhz")  # in the order of -ac
LOCKS = {"locked_graphics": "-lgc", "locked_memory": "-lmc"}

BOOT = BootUnit("gpu_clocks", after=(*MODES, "power_limit"))


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change of all GPUs that fail; see `FIX`."""
    every, failed = gpus.among(evidence, findings)
    if not failed:
        return
    yield gpus.change(
        failed,
        told=lambda named: told(named, params, boot=False),
        fields=lambda named: touched(named, params),
        risk=Risk.LIVE,
        owner=BOOT,
        boot=[(each.uuid, words) for each in every for words in told(each, params, boot=True)],
        note=gpus.forgotten(failed, "clocks"),
    )


def told(named: Named, params: Params, *, boot: bool) -> Iterator[Words]:
    """What nvidia-smi is told of a GPU. Raises FixError if something is not known."""
    if sets_application(named, params):
        pair = [application(named, field, params, boot=boot) for field in APPLICATION]
        yield ("-ac", f"{pair[0]},{pair[1]}")
    for clock, option in LOCKS.items():
        wanted = getattr(params, clock)
        if wanted is not None:
            for field in fields(clock):
                named.read(field)  # what cannot be read cannot be restored
            mhz = resolved(named, clock, wanted)
            yield (option, f"{mhz},{mhz}")


def touched(named: Named, params: Params) -> Iterator[str]:
    if sets_application(named, params):
        yield from APPLICATION
    for clock in LOCKS:
        if getattr(params, clock) is not None:
            yield from fields(clock)


def sets_application(named: Named, params: Params) -> bool:
    asked = params.graphics is not None or params.memory is not None
    return asked and all(named.has(field) for field in APPLICATION)


def application(named: Named, field: str, params: Params, *, boot: bool) -> int:
    """Of a clock that is not wanted: the one at boot is its default, the one now is as it is."""
    clock = field.removeprefix("app_clock_").removesuffix("_mhz")
    wanted: int | str | None = getattr(params, clock)
    if wanted is None:
        return resolved(named, clock, "default") if boot else named.read(field)
    return resolved(named, clock, wanted)


def resolved(named: Named, clock: str, wanted: int | str) -> int:
    """In MHz. Raises FixError if the evidence does not say what a word stands for."""
    if not isinstance(wanted, str):
        return wanted
    mhz = named.read(reference(clock, wanted))
    if mhz <= 0:
        raise FixError(f"{named.label}: {reference(clock, wanted)}: NVML says {mhz}")
    return mhz


FIX = Fix(plan=plan, risk=Risk.LIVE, after=BOOT.after)
"""Clocks follow the power limit."""
