"""The power brake holds a busy GPU down."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="throttled",
    second="not enough evidence",
    action="check the power supply",
    gpu={
        "event_reasons": 136,
        "clock_sm_mhz": 600,
        "power_draw_mw": 200000,
    },
    kept_out=True,
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
