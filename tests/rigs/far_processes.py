"""What tests ask of processes that are not their own children."""

import time
from collections.abc import Callable
from pathlib import Path


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


def children_of(pid: int) -> list[int]:
    """The processes that it started and that still run; none of one that is gone."""
    try:
        found = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for words in found for word in words if alive(int(word))]
