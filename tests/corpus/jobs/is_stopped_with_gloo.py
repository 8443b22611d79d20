"""A person stops rank 0, and the others sleep until it sends."""

from tests.corpus.job import JobKind
from tests.corpus.jobs import is_stopped

JOB = JobKind(late=frozenset({0}), cause="stopped", action="kill -CONT", polls=False)


def prepare(rank, path, gpu):
    return is_stopped.prepare(2 if rank == 0 else 0, path, gpu)
