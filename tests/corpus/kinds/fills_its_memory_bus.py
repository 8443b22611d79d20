"""Kernels that the GPU's memory holds up: SM busy, memory busy, little power."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="GPU-bound",
    second="busy or spinning",
    action="fuse the kernels, fewer bytes",
    kept_out=is_drawn(__name__),
    gpu={
        "event_reasons": 0,
        "clock_sm_mhz": 1980,
        "power_draw_mw": 400000,
        "utilization_memory_percent": 95,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
