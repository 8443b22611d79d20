"""A collective of all ranks hangs, as after a mismatch of shapes: all poll, and none is late."""

import time

from tests.corpus.job import POLLING, TICK_S, JobKind, busy_keeper

JOB = JobKind(
    late=frozenset(),
    cause="",
    action="look at the dumps of the flight recorder",
    gpus=dict.fromkeys(range(4), POLLING),
)


def prepare(_rank, _path, gpu):
    keep_busy = busy_keeper(gpu)

    def hang():
        while True:
            time.sleep(TICK_S)
            keep_busy()

    return hang
