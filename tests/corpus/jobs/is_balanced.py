"""All ranks compute for as long; none is late."""

from tests.corpus.job import WORKING, JobKind
from tests.corpus.jobs import has_a_slow_clock

JOB = JobKind(late=frozenset(), cause="", action="none", gpus=dict.fromkeys(range(4), WORKING))


def prepare(_rank, path, gpu):
    return has_a_slow_clock.prepare(3, path, gpu)
