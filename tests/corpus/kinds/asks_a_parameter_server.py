"""After each step it sends to a server of parameters, and waits for the answer."""

import socket
import time

from gpu import SimulatedGpu
from hosts import elsewhere, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="network-bound",
    second="not enough evidence",
    action="look at the server",
    kept_out=is_drawn(__name__),
)


def serve(server):
    peer = server.accept()[0]
    while True:
        rest = 100000
        while rest:
            rest -= len(peer.recv(rest))
        time.sleep(0.03)
        peer.sendall(b"0" * 100)


def run(_):
    server = listening()
    port = server.getsockname()[1]
    elsewhere(lambda: serve(server))
    server.close()
    gpu, peer = SimulatedGpu(), socket.create_connection(("127.0.0.1", port))
    while True:
        gpu.run(0.01)
        gpu.wait()
        peer.sendall(b"0" * 100000)
        peer.recv(100)
