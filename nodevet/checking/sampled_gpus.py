"""The GPUs of an earlier reading."""

from collections.abc import Iterator
from typing import NamedTuple

from nodevet.evidence.document import Evidence, answer_once
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.last_look import differ
from nodevet.evidence.rates import earlier_sample

SAMPLED_GPUS = (
    "gpu.gpus[].index",
    "earlier.gpu.gpus[].index",
    "earlier.gpu.gpus[].uuid",
    "gpu.gpus[].uuid",
    "earlier.gpu.gpus[].serial",
    "gpu.gpus[].serial",
)
"""The fields that identify a GPU: part of `reads` of a check that uses `gpu_before`."""


class GpuBefore(NamedTuple):
    """An earlier reading of a GPU; `gpu` is None with a reason in `why` if unknown."""

    gpu: Gpu | None = None
    seconds: float = 0.0
    why: str = ""
    look: bool = False  # whether the reading is the last look


def gpu_before(evidence: Evidence, gpu: Gpu) -> GpuBefore | None:
    """The same GPU in the earlier reading; None without a reading, or if another GPU was there at
    the last look."""
    sample = earlier_sample(evidence, Gpus)
    if sample is None:
        return None
    if sample.data is None:
        return GpuBefore(why=f"sample of GPUs: {sample.why}")
    if sample.data.gpus is None:
        return GpuBefore(why=f"sample of GPUs: {sample.data.why('gpus')}")
    if sample.look:
        earlier = next(
            (candidate for candidate in sample.data.gpus if candidate.index == gpu.index), None
        )
        if earlier is None or differ((earlier.uuid, gpu.uuid), (earlier.serial, gpu.serial)):
            return None
        return GpuBefore(earlier, sample.seconds, look=True)
    same_gpu = _by_name(evidence).get((gpu.index, gpu.uuid))
    return GpuBefore(same_gpu, sample.seconds, "" if same_gpu else "it was not read earlier")


@answer_once
def _by_name(evidence: Evidence) -> dict[tuple[int, str | None], Gpu]:
    return {(gpu.index, gpu.uuid): gpu for gpu in _gpus(evidence)}


def _gpus(evidence: Evidence) -> Iterator[Gpu]:
    sample = earlier_sample(evidence, Gpus)
    yield from (sample.data.gpus if sample and sample.data else None) or ()
