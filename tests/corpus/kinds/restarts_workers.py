"""Starts its workers anew for each short epoch; they import for longer than they work."""

import subprocess
import sys

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="not enough evidence",
    action="keep the workers (persistent_workers)",
    kept_out=is_drawn(__name__),
    by_background={
        "loaded": ("CPUs taken by others", "preprocessing-bound"),
        "quota": ("CPU quota used up", "preprocessing-bound"),
    },
)


WORKER = "import asyncio, email, http.client, json, unittest, xml.dom.minidom, decimal"


def run(_):
    gpu = SimulatedGpu()
    while True:
        workers = [subprocess.Popen([sys.executable, "-c", WORKER]) for _worker in range(2)]
        for worker in workers:
            worker.wait()
        gpu.run(0.05)
