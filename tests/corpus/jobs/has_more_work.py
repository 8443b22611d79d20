"""Rank 0 has larger batches than the others: its GPU computes while theirs poll."""

from tests.corpus.job import POLLING, WORKING, JobKind
from tests.corpus.jobs import has_a_slow_clock

JOB = JobKind(
    late=frozenset({0}),
    cause="computes",
    action="balance the batches",
    gpus={0: WORKING, **dict.fromkeys(range(1, 4), POLLING)},
)


def prepare(rank, path, gpu):
    return has_a_slow_clock.prepare(3 if rank == 0 else 0, path, gpu)
