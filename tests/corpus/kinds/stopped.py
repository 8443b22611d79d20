"""A debugger, or somebody's kill -STOP, holds the job."""

import os
import signal
import threading

from gpu import SimulatedGpu
from hosts import HELD

from tests.corpus.kind import OUTSIDE, Kind, is_drawn

KIND = Kind(
    label="stuck",
    second="not enough evidence",
    action="find the debugger, or kill -CONT",
    kept_out=is_drawn(__name__),
    backgrounds=OUTSIDE,
)


def run(_):
    SimulatedGpu(memory_mb=HELD)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
    threading.Event().wait()
