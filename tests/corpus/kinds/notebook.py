"""The kernel of a notebook with the GPU's memory full: it waits for its user's next cell."""

import selectors
import socket
import threading

from gpu import SimulatedGpu
from hosts import HELD, elsewhere, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="waiting for requests",
    second="idle",
    action="ask its owner; free the GPU",
    kept_out=is_drawn(__name__),
)


def run(_):
    server = listening()
    port = server.getsockname()[1]
    elsewhere(lambda: (socket.create_connection(("127.0.0.1", port)), threading.Event().wait()))
    user = server.accept()[0]
    SimulatedGpu(memory_mb=HELD)
    chosen = selectors.EpollSelector()
    chosen.register(server, selectors.EVENT_READ)
    chosen.register(user, selectors.EVENT_READ)
    while True:
        chosen.select()
