"""Its GPU is busy for two seconds, then all sleep for two: a validation phase."""

import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="not enough evidence",
    second="waiting for requests",
    action="watch it for longer",
    kept_out=True,
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(2.0)
        gpu.wait()
        time.sleep(2)
