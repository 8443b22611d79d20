"""A healthy inference server without requests."""

import select
import socket

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="waiting for requests",
    second="idle",
    action="nothing",
)


def run(_):
    SimulatedGpu(memory_mb=70000)
    with socket.create_server(("127.0.0.1", 0)) as server, select.epoll() as events:
        events.register(server, select.EPOLLIN)
        events.poll()
