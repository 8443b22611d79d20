"""A rank of a CPU collective over TCP: its peer computes longer, and it waits in poll."""

import select
import socket
import threading
import time

from gpu import SimulatedGpu
from hosts import elsewhere, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="network-bound",
    second="not enough evidence",
    action="look at the other rank",
    kept_out=is_drawn(__name__),
)


def other_rank(server):
    peer = server.accept()[0]
    while peer.recv(1):
        time.sleep(0.3)
        peer.sendall(b"1")


def run(_):
    server, passed = listening(), threading.Semaphore(0)
    port = server.getsockname()[1]
    elsewhere(lambda: other_rank(server))
    server.close()
    peer = socket.create_connection(("127.0.0.1", port))

    def listen():
        chosen = select.poll()
        chosen.register(peer, select.POLLIN)
        while chosen.poll():
            peer.recv(1)
            passed.release()

    threading.Thread(target=listen, daemon=True).start()
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.05)
        gpu.wait()
        peer.sendall(b"1")
        passed.acquire()
