"""Heat slows a GPU that is seldom busy."""

import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="throttled",
    second="not enough evidence",
    action="cool it",
    gpu={
        "event_reasons": 72,
        "clock_sm_mhz": 345,
        "power_draw_mw": 120000,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.05)
        time.sleep(0.15)
