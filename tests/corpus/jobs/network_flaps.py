"""The network between the ranks drops everything for most of the time; no rank is late."""

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset(),
    cause="",
    action="look at the links",
    gpus=dict.fromkeys(range(4), POLLING),
    network="flaps",
)


def prepare(_rank, _path, _gpu):
    return lambda: None
