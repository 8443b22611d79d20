"""The same, and a rank that waits sleeps."""

from tests.corpus.job import JobKind

JOB = JobKind(late=frozenset(), cause="", action="look at the links", polls=False, network="flaps")


def prepare(_rank, _path, _gpu):
    return lambda: None
