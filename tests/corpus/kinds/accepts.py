"""A healthy server in accept, to which nobody connects."""

import socket

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="waiting for requests",
    second="idle",
    action="nothing",
    kept_out=True,
)


def run(_):
    SimulatedGpu(memory_mb=70000)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()
