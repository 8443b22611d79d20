"""Rank 2 is bound to one CPU, and others compute on it."""

from hosts import burn

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({2}),
    cause="CPUs taken by others",
    action="give the job CPUs of its own",
    gpus=dict.fromkeys(range(4), POLLING),
    needs={2: "taken CPU"},
)


def prepare(rank, _path, _gpu):
    return lambda: burn(0.1 if rank == 2 else 0.002)
