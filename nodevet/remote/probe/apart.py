"""Reads in a child process what may hang for ever: files whose paths the user of a job names."""

import json
import os
import select
import signal
import time

from nodevet.remote.lifetime import find_prctl, kill_with_parent
from nodevet.remote.probe.files import attempt
from nodevet.remote.probe.messages import ANSWER, Messages, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

HUNG = "not read within {:g} s: its file system may hang"
CHUNK = 1 << 16  # bytes in one read(2)


def read_apart(
    readers: "Sequence[Callable[[], Any]]", seconds: float
) -> "list[tuple[Any | None, Any]]":
    """`attempt` of each reader, whose result JSON can hold; all of them share the time."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            kill_with_parent(find_prctl())
            for read in readers:
                send(writer, ANSWER, json.dumps(attempt(read)).encode("ascii"))
        finally:
            os._exit(0)
    os.close(writer)
    try:
        answers = list(received(reader, time.monotonic() + seconds))
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)  # one that hangs ends later
    missing = len(readers) - len(answers)
    return answers + [(None, HUNG.format(seconds))] * missing


def received(reader: int, end: float) -> "Iterator[tuple[Any | None, Any]]":
    """The answers that arrive until a time. Raises ValueError."""
    messages, poll = Messages(), select.poll()
    poll.register(reader, select.POLLIN)
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        chunk = os.read(reader, CHUNK)
        if not chunk:
            return
        for _, text in messages.take(chunk):
            value, why = json.loads(text.decode("ascii"))
            yield value, why
