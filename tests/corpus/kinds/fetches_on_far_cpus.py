"""A few ticks on the other socket: it waits for a slow server of samples."""

import socket

import far
from gpu import SimulatedGpu
from hosts import burn, drip, elsewhere, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="network-bound",
    second="not enough evidence",
    action="look at the server and the network",
    gpu_node=0,
    kept_out=is_drawn(__name__),
)


def run(_):
    server = listening()
    elsewhere(lambda: drip(server, 10000, 0.1))
    port = server.getsockname()[1]
    server.close()
    far.stay(1)
    gpu, peer = SimulatedGpu(), socket.create_connection(("127.0.0.1", port))
    while peer.recv(1 << 16):
        burn(0.003)
        gpu.run(0.02)
