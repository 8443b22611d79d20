"""Its master does not run: it tries to connect to it again and again."""

import socket
import time

from gpu import SimulatedGpu
from hosts import HELD, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="network-bound",
    second="not enough evidence",
    action="start the master, or look at its address",
    kept_out=is_drawn(__name__),
)


def run(_):
    with listening() as server:
        port = server.getsockname()[1]
    SimulatedGpu(memory_mb=HELD)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.5)
