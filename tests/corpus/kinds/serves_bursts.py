"""An inference server: each second a few requests come at once."""

import selectors
import socket
import time

from gpu import SimulatedGpu
from hosts import elsewhere, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="waiting for requests",
    second="not enough evidence",
    action="nothing",
    kept_out=is_drawn(__name__),
)


def ask(port):
    peer = socket.create_connection(("127.0.0.1", port))
    while True:
        for _request in range(4):
            peer.sendall(b"1")
        time.sleep(1)


def run(_):
    server = listening()
    port = server.getsockname()[1]
    elsewhere(lambda: ask(port))
    client, gpu = server.accept()[0], SimulatedGpu()
    chosen = selectors.EpollSelector()
    chosen.register(server, selectors.EVENT_READ)
    chosen.register(client, selectors.EVENT_READ)
    while chosen.select():
        client.recv(1)
        gpu.run(0.05)
        gpu.wait()
