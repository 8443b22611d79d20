"""Somebody locked the clocks at 65 %."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="throttled",
    second="not enough evidence",
    action="nvidia-smi -rgc",
    gpu={
        "locked_clock_graphics_min_mhz": 1290,
        "locked_clock_graphics_max_mhz": 1290,
        "utilization_memory_percent": 40,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
