"""Steps of an environment take their own time. Its loaders, far ahead, wait in poll; they have the
connection that their parent opened before it started them."""

import os
import select
import socket
import threading
import time

from gpu import SimulatedGpu
from hosts import elsewhere, listening

from tests.corpus.kind import Kind

KIND = Kind(
    label="not enough evidence",
    second="waiting for requests",
    action="trace it",
    kept_out=False,  # nodevet said network-bound
    backgrounds=("quiet",),
)


def idle():
    server = listening()
    port = server.getsockname()[1]
    elsewhere(lambda: (server.accept(), threading.Event().wait()))
    server.close()
    return socket.create_connection(("127.0.0.1", port))


def wait_for_work(place):
    waiting = select.poll()
    waiting.register(place, select.POLLIN)
    while True:
        waiting.poll(5000)


def run(_):
    store = idle()
    for _loader in range(2):
        read, _write = os.pipe()
        if os.fork() == 0:
            wait_for_work(read)
    gpu = SimulatedGpu()
    while store:
        time.sleep(0.06)
        gpu.run(0.03)
        gpu.wait()
