"""A few ticks on the other socket: an inference server with few requests."""

import socket
import time

import far
from gpu import SimulatedGpu
from hosts import burn, elsewhere, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="waiting for requests",
    second="not enough evidence",
    action="nothing",
    gpu_node=0,
    kept_out=is_drawn(__name__),
)


def ask(port):
    while True:
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"1")
            peer.recv(1)
        time.sleep(0.1)


def run(_):
    server = listening()
    port = server.getsockname()[1]
    elsewhere(lambda: ask(port))
    far.stay(1)
    gpu = SimulatedGpu()
    while True:
        with server.accept()[0] as client:
            client.recv(1)
            burn(0.003)
            gpu.run(0.02)
            gpu.wait()
            client.sendall(b"1")
