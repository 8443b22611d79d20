"""Rank 2 ended before nodevet began, and the others poll for it."""

import os
import time

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({2}),
    cause="not seen",
    action="read the end of its log",
    gpus=dict.fromkeys(range(4), POLLING),
    starts=3,
)


def prepare(rank, _path, _gpu):
    def crash():
        if rank == 2:
            time.sleep(0.2)
            os._exit(1)

    return crash
