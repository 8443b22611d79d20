"""Four workers decompress shards, with less than the CPUs that they need."""

import os
import zlib

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="CPUs taken by others",
    action="more CPUs, or a faster codec",
    kept_out=is_drawn(__name__),
    by_background={
        "loaded": ("CPUs taken by others", "preprocessing-bound"),
        "quota": ("CPU quota used up", "preprocessing-bound"),
    },
)


def run(_):
    read, write = os.pipe()
    packed = zlib.compress(b"a line of text and its number 12345\n" * 100000)
    for _worker in range(4):
        if os.fork() == 0:
            while True:
                for _shard in range(4):
                    zlib.decompress(packed)
                os.write(write, b"1")
    gpu = SimulatedGpu()
    while os.read(read, 1):
        gpu.run(0.004)
