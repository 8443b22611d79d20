"""Rank 0 writes a checkpoint after each step, and the others wait for it."""

import os
import tempfile
from pathlib import Path

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({0}),
    cause="storage-bound",
    action="write checkpoints less often, or beside the steps",
    gpus=dict.fromkeys(range(4), POLLING),
)


def prepare(rank, _file, _gpu):
    if rank != 0:
        return lambda: None
    data = os.urandom(1 << 25)
    file, path = tempfile.mkstemp(dir="/var/tmp")
    Path(path).unlink()

    def save():
        for _ in range(4):
            os.pwrite(file, data, 0)
            os.fsync(file)

    return save
