"""The cgroup of rank 1 has less memory than its mapping, so that the kernel reads it again."""

import mmap
from pathlib import Path

from tests.corpus.job import POLLING, JobKind

JOB = JobKind(
    late=frozenset({1}),
    cause="memory-pressure",
    second="storage-bound",
    action="raise the memory limit",
    gpus=dict.fromkeys(range(4), POLLING),
    needs={1: "memory limit"},
    slow_file=True,
)
LARGEST = 200 << 20


def prepare(rank, path, _gpu):
    if rank != 1:
        return lambda: None
    with Path(path).open("rb") as file:
        data = mmap.mmap(file.fileno(), LARGEST, prot=mmap.PROT_READ)
    places = iter(())

    def touch():
        nonlocal places
        for _ in range(6000):
            place = next(places, None)
            if place is None:
                places = iter(range(0, LARGEST, 4096))
                place = next(places)
            data[place]

    return touch
