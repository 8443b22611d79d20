"""Rank 1 ends while nodevet watches, and the others poll for it."""

import os
import time

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({1}),
    cause="ended",
    action="read the end of its log",
    gpus=dict.fromkeys(range(4), POLLING),
)
AFTER_S = 4.0


def prepare(rank, _path, _gpu):
    end = time.monotonic() + AFTER_S

    def crash():
        if rank == 1 and time.monotonic() > end:
            os._exit(1)
        time.sleep(0.02)

    return crash
