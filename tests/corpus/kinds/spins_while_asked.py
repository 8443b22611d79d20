"""A pipeline server without requests: its GPU polls, its thread waits in epoll."""

import select
import socket
import threading

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="busy or spinning",
    second="waiting for requests",
    action="nothing",
    gpu={
        "event_reasons": 0,
        "power_draw_mw": 240000,
        "clock_sm_mhz": 1980,
        "utilization_memory_percent": 0,
    },
    kept_out=True,
)


def run(_):
    threading.Thread(target=serve, daemon=True).start()
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)


def serve():
    with socket.create_server(("127.0.0.1", 0)) as server, select.epoll() as events:
        events.register(server, select.EPOLLIN)
        events.poll()
