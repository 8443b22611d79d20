"""Heat slows a GPU that is busy all the time (software thermal slowdown)."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="throttled",
    second="not enough evidence",
    action="cool it",
    kept_out=is_drawn(__name__),
    gpu={
        "event_reasons": 32,
        "clock_sm_mhz": 1500,
        "power_draw_mw": 480000,
        "utilization_memory_percent": 45,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
