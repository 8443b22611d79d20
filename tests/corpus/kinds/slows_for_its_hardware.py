"""The board slows its GPU down (hardware slowdown), with memory-bound kernels."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="throttled",
    second="not enough evidence",
    action="dmesg, power cables, then replace it",
    kept_out=is_drawn(__name__),
    gpu={
        "event_reasons": 8,
        "clock_sm_mhz": 900,
        "power_draw_mw": 300000,
        "utilization_memory_percent": 80,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
