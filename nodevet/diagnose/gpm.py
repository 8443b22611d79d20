"""Whether a busy GPU works or polls, by NVML's performance monitoring on Hopper and later (pure).

A collective that waits keeps some SMs busy, and neither tensor cores nor memory.
"""

from collections.abc import Iterator, Mapping

from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import known
from nodevet.diagnose.words import number
from nodevet.evidence.gpu_activity import GpuActivity

FEW_SMS = 25.0  # percent: NCCL uses at most 32 channels, a block each, of 132 SMs
UNUSED = 1.0  # percent of the tensor cores' time
QUIET_MEMORY = 5.0  # percent of the memory's bandwidth
UNREAD = "what its SMs did was not read, though the driver measures it"
WHAT = {
    "sm_active": ("sm_percent", "SMs that were busy"),
    "tensor_active": ("tensor_percent", "time in which the tensor cores were busy"),
    "dram_active": ("dram_percent", "memory bandwidth in use"),
}


def gpm_figures(gpu: GpuActivity) -> Iterator[Figure]:
    """The busiest GPU instance, or the whole GPU."""
    for name, (field, what) in WHAT.items():
        values = known(getattr(part, field) for part in gpu.gpm or ())
        why = gpu.why("gpm") if not gpu.gpm else gpu.gpm[0].why(field)
        if gpu.gpm_supported and not values:
            why = UNREAD
        yield Figure(name, max(values, default=None), "%", what, "" if values else why)


def polls(figures: Mapping[str, Figure]) -> bool | None:
    """Whether the GPU does what a collective that waits does; None if that was not read."""
    sms, tensor, memory = (figures[name].value for name in WHAT)
    if sms is None:
        return None
    return sms < FEW_SMS and (tensor or 0.0) < UNUSED and (memory or 0.0) < QUIET_MEMORY


def gpm_doubt(figures: Mapping[str, Figure]) -> str:
    """Why a GPU that seems to work may poll; empty if nothing says so."""
    if figures["sm_active"].why == UNREAD:
        return UNREAD
    return f"{parts_text(figures)}, as in a collective that waits" if polls(figures) else ""


def parts_text(figures: Mapping[str, Figure]) -> str:
    """`only 12 % of its SMs were busy, 0 % of its tensor cores, 0.4 % of its memory bandwidth`."""
    sms, tensor, memory = (figures[name].value for name in WHAT)
    texts = [f"only {number(sms or 0.0)} % of its SMs were busy"]
    texts += [] if tensor is None else [f"{number(tensor)} % of its tensor cores"]
    texts += [] if memory is None else [f"{number(memory)} % of its memory bandwidth"]
    return ", ".join(texts)


def spinning_doubt(figures: Mapping[str, Figure], collective: str) -> str:
    """What a GPU that seems to poll may do instead, by its SMs if they were read."""
    is_polling = polls(figures)
    if is_polling is None:
        return collective
    if is_polling:
        return f"{collective}; {parts_text(figures)}"
    return f"its SMs, tensor cores or memory are busier than in one, but {collective}"
