"""Reads sections one after the other, in a child that was made for them.

It goes on to the next only while it is as it was before the first: what a collector leaves behind
must not reach another one.
"""

import os
import resource
import time

from nodevet.remote.guard import die_with_parent
from nodevet.remote.probe.files import (
    Absent,
    Denied,
    PartialRoot,
    SectionError,
    TransientError,
    attempt,
    reason,
)
from nodevet.remote.probe.messages import ANSWER, STOP, encode, failure, send
from nodevet.remote.probe.sections import collector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from nodevet.remote.probe.messages import Note

SPARE = 1.0  # seconds after which the alarm does what the parent did not
GROWTH = 64 << 10  # KiB of memory that may be taken before the next is read elsewhere


def section(name: str, root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """One section's result, whatever happens inside its collector; `began` by the clock that all
    processes here share."""
    started = time.monotonic()
    try:
        result = {"status": "ok", "data": collector(name).collect(root, request)}
    except Absent as error:
        # of a tree that may be a part of a machine, this says nothing of the machine
        result = failure(
            str(error) or "absent", "error" if isinstance(root, PartialRoot) else "absent"
        )
    except Denied as error:
        result = failure(str(error), "denied")
    except SectionError as error:
        result = failure(str(error) or "failed")
        if isinstance(error, TransientError):
            result["transient"] = True
    except OSError as error:
        denied = isinstance(error, PermissionError)
        why = "{}: {}".format(reason(error), error.filename) if error.filename else reason(error)
        result = failure(why, "denied" if denied else "error")
    except Exception as error:
        result = failure("{}: {}".format(type(error).__name__, error)[:200])
    result["seconds"] = round(time.monotonic() - started, 4)
    result["began"] = started
    return result


def read_all(
    names: "Sequence[str]",
    ends: "dict[str, float]",
    root: str,
    request: "dict[str, Any]",
    writer: int,
    note: "Note",
    prctl: "Callable[..., int] | None",
    parent: int,
) -> None:
    """Read these sections and tell the parent; `ends`: {section: when its time is up}."""
    clean, most = state(), memory() + GROWTH
    for name in names:
        die_with_parent(prctl, parent, max(0.0, ends[name] - time.monotonic()) + SPARE)
        note.write("")
        told = dict(request, note=note.write, end=ends[name])
        send(writer, ANSWER, encode(section(name, root, told)))
        if state() != clean or memory() > most:
            send(writer, STOP, b"")
            return


def state() -> "tuple[int, str | None, bool]":
    """What a collector may leave behind: an open descriptor, another directory, a child."""
    free = os.dup(0)
    os.close(free)
    return free, attempt(os.getcwd)[0], has_child()


def has_child() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def memory() -> int:
    """The most that this process has had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
