"""The cgroup of rank 3 has a fifth of a CPU."""

from hosts import burn

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({3}),
    cause="CPU quota used up",
    action="raise the quota",
    gpus=dict.fromkeys(range(4), POLLING),
    needs={3: "quota"},
)


def prepare(rank, _path, _gpu):
    return lambda: burn(0.1 if rank == 3 else 0.002)
