"""Heat slows the GPU of rank 3: it computes for longer, and the others poll."""

import time

from tests.corpus.job import POLLING, WORKING, JobKind

JOB = JobKind(
    late=frozenset({3}),
    cause="throttled",
    action="cool it",
    gpus={
        **dict.fromkeys(range(3), POLLING),
        3: {**WORKING, "event_reasons": 72, "clock_sm_mhz": 600, "power_draw_mw": 250_000},
    },
)


def prepare(rank, _path, gpu):
    def compute():
        if rank == 3:
            gpu.run(0.3)
            time.sleep(0.3)

    return compute
