"""A person stops rank 2, and the others poll for it."""

import os
import signal
import threading

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({2}),
    cause="stopped",
    action="kill -CONT",
    gpus=dict.fromkeys(range(4), POLLING),
)


def prepare(rank, _path, _gpu):
    if rank == 2:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
    return lambda: None
