"""A server that listens on a Unix socket, without requests."""

import socket
import tempfile

from gpu import SimulatedGpu
from hosts import HELD

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="waiting for requests",
    second="not enough evidence",
    action="nothing",
    kept_out=is_drawn(__name__),
)

UNIX = socket.AF_UNIX


def run(_):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, socket.socket(UNIX) as server:
        server.bind(f"{folder}/socket")
        server.listen()
        SimulatedGpu(memory_mb=HELD)
        server.accept()
