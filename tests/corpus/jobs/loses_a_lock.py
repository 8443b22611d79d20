"""Rank 2 waits for a lock that no thread releases, as after a fork of a process with threads."""

import threading

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({2}),
    cause="stuck",
    second="its GPU is not busy",
    action="py-spy dump --pid PID",
    gpus=dict.fromkeys(range(4), POLLING),
)


def prepare(rank, _path, _gpu):
    lock = threading.Lock()
    return lock.acquire if rank == 2 else lambda: None
