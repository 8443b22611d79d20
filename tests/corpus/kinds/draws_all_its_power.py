"""Heavy kernels at the board's own power limit, as is normal."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="GPU-bound",
    second="throttled",
    action="nothing",
    kept_out=is_drawn(__name__),
    gpu={
        "event_reasons": 4,
        "clock_sm_mhz": 1500,
        "power_draw_mw": 698000,
        "utilization_memory_percent": 60,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
