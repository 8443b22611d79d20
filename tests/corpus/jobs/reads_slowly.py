"""Rank 1 reads its input from a slow file system; the others have theirs in memory."""

import os
import random

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({1}),
    cause="storage-bound",
    action="look at the storage of that host",
    gpus=dict.fromkeys(range(4), POLLING),
    slow_file=True,
)


def prepare(rank, path, _gpu):
    if rank != 1:
        return lambda: None
    file = os.open(path, os.O_RDONLY)
    pages = (1 << 30) // 4096

    def read():
        for _ in range(10):
            os.pread(file, 4096, random.randrange(pages) * 4096)

    return read
