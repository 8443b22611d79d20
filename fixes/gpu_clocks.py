"""Set every GPU's application and locked clocks to the expected ones, now and at every boot.

**Now** `nvidia-smi -i UUID -ac MEMORY,GRAPHICS` for each GPU whose application clocks fail. The fix
sets both together: a clock that the baseline does not name stays as it is. `nvidia-smi -i
UUID -lgc MHZ,MHZ` and `-lmc MHZ,MHZ` lock clocks.

**At every boot** the unit `nodevet-gpu-clocks.service` sets the clocks of every GPU of the node,
after nvidia-persistenced and before slurmd and the kubelet; an application clock that the baseline
does not name is then at its default. The unit is the only manager of the setting. If one GPU fails,
the unit still sets the others, and then fails.

**Risk** live: jobs go on, and get slower or faster.

**Rollback** restores the earlier clocks, and removes the unit or restores the earlier one.

**What it cannot do.** nodevet locks clocks only if the driver reports the locked clocks: no known
driver does, and a lock that cannot be read can neither be verified nor restored. nvidia-smi refuses
a pair that the GPU does not have (`nvidia-smi -q -d SUPPORTED_CLOCKS`). With persistence mode off
the driver forgets the clocks when the GPU's last client leaves; the plan says so, and
`persistence_mode` comes first. nodevet refuses the whole node if a GPU does not respond or does not
report its clocks, because the unit sets every GPU.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.gpu_clocks import Params, fields, reference
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpus
from nodevet.fixing.boot_unit import MODES, BootUnit, Words
from nodevet.fixing.gpus import NamedGpu
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding

APPLICATION = ("app_clock_memory_mhz", "app_clock_graphics_mhz")  # in the order of -ac
LOCKS = {"locked_graphics": "-lgc", "locked_memory": "-lmc"}

BOOT = BootUnit("gpu_clocks", after=(*MODES, "power_limit"))


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change for all GPUs that fail; see `FIX`."""
    every_gpu, failed = gpus.all_and_failed(evidence, findings)
    yield gpus.change(
        failed,
        options=lambda gpu: clock_options(gpu, params, boot=False),
        fields=lambda gpu: changed_fields(gpu, params),
        risk=Risk.LIVE,
        owner=BOOT,
        boot=[
            (gpu.uuid, words)
            for gpu in every_gpu
            for words in clock_options(gpu, params, boot=True)
        ],
        note=gpus.forgetting_note(failed, "clocks"),
    )


def clock_options(gpu: NamedGpu, params: Params, *, boot: bool) -> Iterator[Words]:
    """Options of nvidia-smi for a GPU. Raises FixError if a value was not read."""
    if sets_application(gpu, params):
        pair = [application_mhz(gpu, field, params, boot=boot) for field in APPLICATION]
        yield ("-ac", f"{pair[0]},{pair[1]}")
    for clock, option in LOCKS.items():
        expected = getattr(params, clock)
        if expected is not None:
            for field in fields(clock):
                gpu.read(field)  # what cannot be read cannot be restored
            mhz = clock_mhz(gpu, clock, expected)
            yield (option, f"{mhz},{mhz}")


def changed_fields(gpu: NamedGpu, params: Params) -> Iterator[str]:
    if sets_application(gpu, params):
        yield from APPLICATION
    for clock in LOCKS:
        if getattr(params, clock) is not None:
            yield from fields(clock)


def sets_application(gpu: NamedGpu, params: Params) -> bool:
    if params.graphics is None and params.memory is None:
        return False
    return all(gpu.has(field) for field in APPLICATION)


def application_mhz(gpu: NamedGpu, field: str, params: Params, *, boot: bool) -> int:
    """The value to set in MHz. A clock that the baseline does not name gets its default at boot,
    and keeps its value now. Raises FixError if a value was not read."""
    clock = field.removeprefix("app_clock_").removesuffix("_mhz")
    expected: int | str | None = getattr(params, clock)
    if expected is None:
        return clock_mhz(gpu, clock, "default") if boot else gpu.read(field)
    return clock_mhz(gpu, clock, expected)


def clock_mhz(gpu: NamedGpu, clock: str, expected: int | str) -> int:
    """A clock in MHz. Raises FixError if the evidence has no value for a word such as `default`."""
    if not isinstance(expected, str):
        return expected
    mhz = gpu.read(reference(clock, expected))
    if mhz <= 0:
        raise FixError(f"{gpu.label}: {reference(clock, expected)}: NVML says {mhz}")
    return mhz


FIX = Fix(plan=plan, risk=Risk.LIVE, after=BOOT.after)
"""Clocks follow the power limit."""
