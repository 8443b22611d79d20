"""What tests ask of processes that are not their own children."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from slow_machine import slowness


def wait_for(there: Callable[[], object], seconds: float = 60) -> None:
    """Until it is so; an assertion fails if it takes longer."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody collects does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def sleeps(pid: int) -> bool:
    """Whether a process has become `sleep`, and sleeps."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
    return name == "sleep" and rest.startswith("S")


def take_signal(pid: int, number: signal.Signals) -> None:
    """Wait until no such signal waits for a process any more, and Python had the time to act."""
    wait_for(lambda: not any(mask >> (number - 1) & 1 for mask in pending(pid)))
    threading.Event().wait(0.3 * slowness())  # also where a test lets no sleep take time


def pending(pid: int) -> list[int]:
    """The signals that wait for a process and for its first thread, as bits."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [int(row.split()[1], 16) for row in rows if row.startswith(("SigPnd:", "ShdPnd:"))]


def children_of(pid: int) -> list[int]:
    """The processes that it started and that still run; none of one that is gone."""
    try:
        found = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for words in found for word in words if alive(int(word))]
