"""Whether a busy GPU works or polls, by NVML's performance monitoring on Hopper and later (pure).

A collective that waits keeps some SMs busy, and neither tensor cores nor memory.
"""

from collections.abc import Iterator, Mapping

from nodevet.diagnose.model import AS_POLLING, Figure
from nodevet.diagnose.words import number
from nodevet.evidence.gpu_activity import GpuActivity

FEW_SMS = 25.0  # percent: NCCL uses at most 32 channels, a block each, of 132 SMs
UNUSED = 1.0  # percent of the tensor cores' time
QUIET_MEMORY = 5.0  # percent of the memory's bandwidth
UNREAD = "nodevet could not read what its SMs did, though the driver measures it"
UNASKED = "nodevet could not read what its SMs did, nor whether the driver measures it"
NOT_CONFIRMED = (
    "nodevet could not read how many of its SMs work, which would make this more certain"
)
NO_GPM = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")  # drivers before R520
WHAT = {
    "sm_active": ("sm_percent", "SMs that were busy"),
    "tensor_active": ("tensor_percent", "time in which the tensor cores were busy"),
    "dram_active": ("dram_percent", "memory bandwidth in use"),
}


def gpm_figures(gpu: GpuActivity) -> Iterator[Figure]:
    """Of the busiest GPU instance, which the note names, or of the whole GPU."""
    for name, (field, what) in WHAT.items():
        parts = [part for part in gpu.gpm or () if getattr(part, field) is not None]
        if not parts:
            yield Figure(name, None, "%", what, _missing_reason(gpu, field))
            continue
        busiest = max(parts, key=lambda part: getattr(part, field))
        note = "" if busiest.instance is None else f"GPU instance {busiest.instance}"
        yield Figure(name, getattr(busiest, field), "%", what, note=note)


def _missing_reason(gpu: GpuActivity, field: str) -> str:
    """Why no instance has this value: UNREAD or UNASKED unless the driver does not measure it."""
    if gpu.gpm_supported:
        return UNREAD
    if gpu.gpm_supported is None and gpu.why("gpm_supported") not in NO_GPM:
        return UNASKED
    return gpu.gpm[0].why(field) if gpu.gpm else gpu.why("gpm")


def polls(figures: Mapping[str, Figure]) -> bool | None:
    """Whether the GPU looks like a collective that waits; None if nodevet could not read that."""
    sms, tensor, memory = (figures[name].value for name in WHAT)
    if sms is None:
        return None
    return sms < FEW_SMS and (tensor or 0.0) < UNUSED and (memory or 0.0) < QUIET_MEMORY


def gpm_doubt(figures: Mapping[str, Figure]) -> str:
    """Why a GPU that seems to work may poll; empty if nothing says so."""
    if figures["sm_active"].why in (UNREAD, UNASKED):
        return NOT_CONFIRMED
    return f"{parts_text(figures)}{AS_POLLING}" if polls(figures) else ""


def parts_text(figures: Mapping[str, Figure]) -> str:
    """`only 12 % of its SMs were busy, 0 % of its tensor cores, 0.4 % of its memory bandwidth`."""
    sms, tensor, memory = (figures[name].value for name in WHAT)
    texts = [f"only {number(sms or 0.0)}{OF_SMS}"]
    texts += [] if tensor is None else [f"{number(tensor)} % of its tensor cores"]
    texts += [] if memory is None else [f"{number(memory)} % of its memory bandwidth"]
    return ", ".join(texts)


OF_SMS = " % of its SMs were busy"


def is_of_parts(text: str) -> bool:
    """Whether a text says how little the SMs, tensor cores and memory did."""
    return OF_SMS in text and not text.endswith(AS_POLLING)


def spinning_doubts(figures: Mapping[str, Figure], collective: str) -> tuple[str, ...]:
    """What a GPU that seems to poll may do instead, by its SMs if they were read."""
    is_polling = polls(figures)
    if is_polling is None:
        return (collective,)
    if is_polling:
        return collective, parts_text(figures)
    return (
        f"its SMs, tensor cores or memory are busier than in such a collective, but {collective}",
    )
