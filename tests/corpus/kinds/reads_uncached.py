"""Reads pages of a local file at random, none of which the page cache keeps."""

import os
import random
import tempfile
import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="storage-bound",
    second="submission-bound",
    action="larger reads, more at once",
    kept_out=is_drawn(__name__),
    # beside four programs that compute it waits for a CPU 41 % of the time, and for the disk 32 %
    by_background={"loaded": ("CPUs taken by others + storage-bound", "CPUs taken by others")},
)


def run(_):
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        for _piece in range(128):
            file.write(os.urandom(1 << 20))
        file.flush()
        place = file.fileno()
        os.fsync(place)
        os.posix_fadvise(place, 0, 0, os.POSIX_FADV_RANDOM)
        gpu = SimulatedGpu()
        while True:
            os.posix_fadvise(place, 0, 0, os.POSIX_FADV_DONTNEED)  # a part of a folio stays
            for _page in range(2000):
                began = time.monotonic()
                os.pread(place, 4096, random.randrange(1 << 15) << 12)
                gpu.run((time.monotonic() - began) / 3)  # however quick the machine's disk is
