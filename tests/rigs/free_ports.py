"""Ports of loopback that stay free until a test's program takes them: below those that the kernel
gives to connections, and other ones for each worker."""

import os
import socket
from itertools import cycle

FIRST, EACH, WORKERS = 20000, 1000, 12
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
_PORTS = cycle(FIRST + EACH * WORKER + (os.getpid() + number) % EACH for number in range(EACH))


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One that nobody listens at, and that it gave to nobody before."""
    while True:
        with socket.socket(socket.AF_INET, kind) as one:
            try:
                one.bind(("", port := next(_PORTS)))
            except OSError:
                continue
            return port
