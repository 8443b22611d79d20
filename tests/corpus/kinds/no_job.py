"""Nobody uses the GPU."""

import time

from tests.corpus.kind import Kind

KIND = Kind(
    label="idle",
    second="idle",
    action="nothing",
    has_process=False,
    backgrounds=("quiet", "loaded", "other job"),
)


def run(_):
    while True:
        time.sleep(1)
