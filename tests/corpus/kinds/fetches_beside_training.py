"""A thread fetches the next shard over a slow network; the GPU never waits for it."""

import socket
import threading

from gpu import SimulatedGpu
from hosts import drip, elsewhere, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="GPU-bound",
    second="busy or spinning",
    action="profile the kernels",
    kept_out=is_drawn(__name__),
)


def fetch(port):
    with socket.create_connection(("127.0.0.1", port)) as peer:
        while peer.recv(1 << 16):
            pass


def run(_):
    server = listening()
    port = server.getsockname()[1]
    elsewhere(lambda: drip(server, 20000, 0.05))
    server.close()
    threading.Thread(target=fetch, args=(port,), daemon=True).start()
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
