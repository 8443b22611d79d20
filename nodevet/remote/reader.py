"""Whoever reads the answer: gone once the other end of its pipe or socket is closed."""

import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NobodyReads(Exception):  # noqa: N818 - a state, and not an error
    """Whoever asked is gone."""


def is_gone(event: int) -> bool:
    """Whether an event of poll(2) says that the other end of a pipe or socket was closed."""
    return bool(event & (select.POLLERR | select.POLLHUP)) and not event & select.POLLNVAL


def pause(seconds: float, request: "dict[str, Any]") -> None:
    """Wait so long. Raises NobodyReads once that is so of the descriptor `answer_to`."""
    if "answer_to" not in request:
        time.sleep(seconds)
        return
    end = time.monotonic() + seconds
    poll = select.poll()
    poll.register(request["answer_to"], 0)
    if any(is_gone(event) for _, event in poll.poll(seconds * 1000)):
        raise NobodyReads
    time.sleep(max(0.0, end - time.monotonic()))  # it is closed here
