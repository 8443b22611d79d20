"""The GPU fell off the bus, and nobody uses it."""

import time

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="lost",
    second="not enough evidence",
    action="drain, reset the GPU",
    kept_out=is_drawn(__name__),
    gpu={
        "lost": 1,
    },
    has_process=False,
    backgrounds=("quiet", "loaded", "other job"),
)


def run(_):
    while True:
        time.sleep(1)
