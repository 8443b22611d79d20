"""Every rank reads from the same slow storage; none is late."""

from tests.corpus.job import POLLING, JobKind
from tests.corpus.jobs import reads_slowly

JOB = JobKind(
    late=frozenset(),
    cause="",
    action="look at the storage",
    gpus=dict.fromkeys(range(4), POLLING),
    slow_file=True,
)


def prepare(_rank, path, gpu):
    return reads_slowly.prepare(1, path, gpu)
