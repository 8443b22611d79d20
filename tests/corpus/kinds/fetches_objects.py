"""Four threads fetch samples from an object store that sends slowly."""

import socket
import threading
import time

from gpu import SimulatedGpu
from hosts import elsewhere, listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="network-bound",
    second="not enough evidence",
    action="more fetches at once, or a local copy",
    kept_out=is_drawn(__name__),
)


def send(peer):
    while True:
        peer.sendall(b"0" * 16384)
        time.sleep(0.1)


def serve(server):
    while True:
        threading.Thread(target=send, args=(server.accept()[0],)).start()


def run(_):
    server, ready = listening(), threading.Semaphore(0)
    port = server.getsockname()[1]
    elsewhere(lambda: serve(server))
    server.close()

    def fetch():
        with socket.create_connection(("127.0.0.1", port)) as peer:
            while True:
                rest = 16384
                while rest:
                    rest -= len(peer.recv(rest))
                ready.release()

    for _thread in range(4):
        threading.Thread(target=fetch, daemon=True).start()
    gpu = SimulatedGpu()
    while ready.acquire():
        gpu.run(0.005)
