"""Heat slows a GPU that also is at its power limit."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="throttled",
    second="GPU-bound",
    action="cool it",
    kept_out=is_drawn(__name__),
    gpu={
        "event_reasons": 68,
        "clock_sm_mhz": 1410,
        "power_draw_mw": 695000,
        "utilization_memory_percent": 50,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
