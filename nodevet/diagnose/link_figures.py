"""The PCIe link over time: how full it is while the GPU computes nothing (pure).

Copies that do not overlap with kernels fill the link in the gaps, though its mean is far from full.
"""

from collections.abc import Iterator

from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import known_values, mean, percent
from nodevet.evidence.activity import Numbers, Times
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.gpu_activity import GpuActivity

IDLE = 5.0  # percent busy: a look at which the GPU computed nothing
LEAST = 3  # looks at an idle GPU, below which only the means can tell
OVERFULL = 115.0  # percent of the link: more than it carries did not move in the gaps alone
BY_MEANS = "computed from mean values"
WHAT = "PCIe traffic while the GPU computes nothing (of the link's capacity)"


def idle_link(gpu: GpuActivity, times: Times, capacity_b_s: float | None) -> Figure:
    """The busier direction while the GPU is idle. If too few looks met an idle GPU, computed as if
    all bytes moved in the gaps; 0 if the gaps cannot carry so many bytes."""
    if capacity_b_s is None:
        return _unknown("the link's generation and width were not read")
    if not gpu.samples:
        return _unknown(gpu.why("samples"))
    shares = known_values(
        _idle_share(gpu, times, rates, capacity_b_s) for rates in _directions(gpu)
    )
    if not shares:
        return _unknown(gpu.why("pcie_rx_kb_s"))
    seen = len(_idle_looks(gpu, times)) >= LEAST
    most = max(shares)
    if seen or most > OVERFULL:
        return Figure("idle_link", min(most, 100.0) if seen else 0.0, "%", WHAT)
    return Figure("idle_link", min(most, 100.0), "%", WHAT, note=BY_MEANS)


def settings_of(evidence: Evidence, gpu: GpuActivity) -> Gpu | None:
    """The GPU's record in the section gpu."""
    data = evidence[Gpus].data
    return next(
        (entry for entry in (data.gpus if data else None) or () if entry.index == gpu.index), None
    )


def full_link(evidence: Evidence, gpu: GpuActivity) -> tuple[str, bool] | None:
    """(`gen 5 x16`, whether the link is slower): the most that the GPU and its slot allow; None if
    that was not read."""
    own = settings_of(evidence, gpu)
    most = (own.pcie_generation_max, own.pcie_width_max) if own else (None, None)
    now = (gpu.pcie_generation, gpu.pcie_width)
    if None in (*most, *now):
        return None
    is_less = any(
        here < full for here, full in zip(known_values(now), known_values(most), strict=True)
    )
    return f"gen {most[0]} x{most[1]}", is_less


def _unknown(why: str) -> Figure:
    return Figure("idle_link", None, "%", WHAT, why)


def _directions(gpu: GpuActivity) -> list[Numbers]:
    return [rates for rates in (gpu.pcie_rx_kb_s, gpu.pcie_tx_kb_s) if rates]


def _idle_share(
    gpu: GpuActivity, times: Times, rates: Numbers, capacity_b_s: float
) -> float | None:
    looks = _idle_looks(gpu, times)
    if len(looks) >= LEAST:
        seen = mean(rates[look] for look in looks if look < len(rates))
        return percent(None if seen is None else seen * 1000, capacity_b_s)
    idle = 100.0 - (mean(float(value) for _, value in gpu.samples or ()) or 0.0)
    moved = mean(rates)
    return percent(None if moved is None or idle < IDLE else moved * 1e5 / idle, capacity_b_s)


def _idle_looks(gpu: GpuActivity, times: Times) -> list[int]:
    """The looks whose rate was measured while the GPU was idle."""
    return [look for look, busy in enumerate(_busy_at_looks(gpu, times)) if busy <= IDLE]


def _busy_at_looks(gpu: GpuActivity, times: Times) -> Iterator[float]:
    """Percent busy when each rate was measured: over 20 ms at the look, or since the look before if
    the driver counts bytes."""
    samples = gpu.samples or ()
    before = -1.0
    for at in times:
        if gpu.pcie_rx_b is not None:
            busy = mean(float(value) for end, value in samples if before < end <= at)
        else:
            busy = next((float(value) for end, value in samples if end >= at), None)
        yield 100.0 if busy is None else busy
        before = at
