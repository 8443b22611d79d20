"""Inference with small batches: little power, and the memory is busy."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="GPU-bound",
    second="busy or spinning",
    action="larger batches",
    gpu={
        "event_reasons": 0,
        "power_draw_mw": 260000,
        "clock_sm_mhz": 1980,
        "utilization_memory_percent": 75,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
