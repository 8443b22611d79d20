"""Python collects the garbage of rank 1 in each step, which takes the thread that trains."""

import gc

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({1}),
    cause="preprocessing-bound",
    second="submission-bound",
    action="gc.freeze(), or collect at the same step in all ranks",
    gpus=dict.fromkeys(range(4), POLLING),
)


def prepare(rank, _path, _gpu):
    if rank != 1:
        return lambda: None
    kept = [[number, [number]] for number in range(700_000)]
    return lambda: (len(kept), gc.collect())
