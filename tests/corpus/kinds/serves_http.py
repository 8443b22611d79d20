"""Python's own HTTP server, without requests: it polls twice a second."""

import http.server

from gpu import SimulatedGpu
from hosts import HELD

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="waiting for requests",
    second="not enough evidence",
    action="nothing",
    kept_out=is_drawn(__name__),
)


def run(_):
    SimulatedGpu(memory_mb=HELD)
    http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler).serve_forever()
