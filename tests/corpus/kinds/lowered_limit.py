"""The power limit is far below the board's default."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="throttled",
    second="GPU-bound",
    action="restore the limit",
    kept_out=True,
    gpu={
        "power_limit_mw": 350000,
        "power_limit_enforced_mw": 350000,
        "utilization_memory_percent": 40,
    },
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
