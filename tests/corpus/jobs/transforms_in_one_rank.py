"""Rank 3 transforms its input in the thread that trains; a rank that waits sleeps."""

from hosts import burn

from tests.corpus.job import JobKind

JOB = JobKind(
    late=frozenset({3}),
    cause="preprocessing-bound",
    action="transform in workers",
    polls=False,
)


def prepare(rank, _path, _gpu):
    return lambda: burn(0.2 if rank == 3 else 0.001)
