"""Trains a small model: the GPU is busy, at half of its power."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="GPU-bound",
    second="busy or spinning",
    action="larger batches",
    kept_out=is_drawn(__name__),
    gpu={
        "event_reasons": 0,
        "clock_sm_mhz": 1980,
        "power_draw_mw": 350000,
        "utilization_memory_percent": 20,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
