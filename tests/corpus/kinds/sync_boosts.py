"""Sync boost holds the clock at 65 %."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="throttled",
    second="not enough evidence",
    action="look at the slowest GPU of the group",
    gpu={
        "event_reasons": 16,
        "clock_sm_mhz": 1290,
        "power_draw_mw": 420000,
        "utilization_memory_percent": 40,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
