"""Rank 3 reads its input from a slow file system; a rank that waits sleeps, as with gloo."""

from tests.corpus.job import JobKind
from tests.corpus.jobs import reads_slowly

JOB = JobKind(
    late=frozenset({3}),
    cause="storage-bound",
    action="look at the storage of that host",
    polls=False,
    slow_file=True,
)


def prepare(rank, path, gpu):
    return reads_slowly.prepare(1 if rank == 3 else 0, path, gpu)
