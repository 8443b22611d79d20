"""Which process records a run, and whether it still does."""

import os
import socket
from pathlib import Path

BEAT = 30.0  # seconds between two signs of life of who records a run
QUIET = 300.0  # seconds after which a process of another machine is taken for gone


def this_process() -> str:
    """`HOST PID START`: a process id alone is given again."""
    return f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}"


def is_gone(owner: str, quiet: float) -> bool:
    """Whether nobody records this run any more; of another machine's, by how long it was quiet."""
    host, pid, start = owner.rsplit(" ", 2)
    if host != socket.gethostname():
        return quiet > QUIET
    return _started(int(pid)) != start


def _started(pid: int) -> str:
    """Field 22 of /proc/PID/stat: when it began, in ticks since boot; empty: there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "-"
    return text.rpartition(")")[2].split()[19]
