"""Downloads its model from a peer that sends slowly."""

import os
import signal
import socket
import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="network-bound",
    second="not enough evidence",
    action="look at the peer and the network",
)


def run(_):
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            while True:
                time.sleep(0.5)
                far.send(b"0" * 1000)
        SimulatedGpu(memory_mb=30000)
        while peer.recv(4096):
            pass
