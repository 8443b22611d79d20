"""How slow this machine is while other tests and programs use it."""

import os
import time

WORK_S = 0.02  # of CPU time


def slowness() -> float:
    """Seconds that pass for each second of CPU time that a process gets now; at least 1.

    A deadline that a test lets pass is multiplied by it: what has to be done before takes longer on
    a busy machine, too."""
    began, until = time.monotonic(), time.thread_time() + WORK_S
    while time.thread_time() < until:
        pass
    measured = (time.monotonic() - began) / WORK_S
    return max(1.0, measured, os.getloadavg()[0] / (os.cpu_count() or 1))
