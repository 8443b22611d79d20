"""The engine of an inference server without requests: its first thread waits at a queue, which
another thread fills from the socket of the server's own process."""

import os
import queue
import selectors
import socket
import threading

from gpu import SimulatedGpu
from hosts import HELD, listening

from tests.corpus.kind import Kind

KIND = Kind(
    label="waiting for requests",
    second="not enough evidence",
    action="nothing",
    kept_out=False,  # nodevet said stuck
    backgrounds=("quiet",),
)


def compute(requests):
    SimulatedGpu(memory_mb=HELD)
    waiting = queue.Queue()

    def listen():
        chosen = selectors.PollSelector()
        chosen.register(requests, selectors.EVENT_READ)
        while chosen.select():
            waiting.put(requests.recv(1))

    threading.Thread(target=listen, daemon=True).start()
    waiting.get()


def run(_):
    own, requests = socket.socketpair()
    if os.fork() == 0:
        own.close()
        compute(requests)
    requests.close()
    chosen = selectors.EpollSelector()
    chosen.register(listening(), selectors.EVENT_READ)
    while True:
        chosen.select()
