"""Somebody set application clocks far below the maximum."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="throttled",
    second="not enough evidence",
    action="nvidia-smi -rac",
    kept_out=is_drawn(__name__),
    gpu={
        "app_clock_graphics_mhz": 1200,
        "clock_sm_mhz": 1200,
        "event_reasons": 2,
        "power_draw_mw": 400000,
        "utilization_memory_percent": 40,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
