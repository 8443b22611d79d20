"""A server without requests: eight threads in epoll, the first one waits for them."""

import selectors
import threading

from gpu import SimulatedGpu
from hosts import HELD, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="waiting for requests",
    second="not enough evidence",
    action="nothing",
    kept_out=is_drawn(__name__),
)


def listen():
    chosen = selectors.EpollSelector()
    chosen.register(listening(), selectors.EVENT_READ)
    while True:
        chosen.select()


def run(_):
    SimulatedGpu(memory_mb=HELD)
    threads = [threading.Thread(target=listen, daemon=True) for _thread in range(8)]
    for thread in threads:
        thread.start()
    threads[0].join()
