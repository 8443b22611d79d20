"""A collective that waits: its kernels poll on a few SMs."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="busy or spinning",
    second="not enough evidence",
    action="look at the other ranks",
    gpu={
        "event_reasons": 0,
        "power_draw_mw": 180000,
        "clock_sm_mhz": 1980,
        "utilization_memory_percent": 1,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
