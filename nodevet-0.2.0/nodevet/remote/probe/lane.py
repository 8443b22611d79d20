"""Reads sections in turn, in a child process.

It stops if a collector changed the child: what one leaves behind must not reach the next.
"""

import os
import resource
import time

from nodevet.remote.lifetime import die_with_parent
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

SPARE = 1.0  # seconds between the parent's deadline and the alarm
GROWTH = 64 << 10  # KiB of memory before another child reads the next section


def section(name: str, root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """One section's result, whatever its collector raises; `began`: time.monotonic()."""
    started = time.monotonic()
    try:
        result = {"status": "ok", "data": collector(name).collect(root, request)}
    except Absent as error:
        # a tree of a part of a machine says nothing of the machine
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
        is_denied = isinstance(error, PermissionError)
        why = "{}: {}".format(reason(error), error.filename) if error.filename else reason(error)
        result = failure(why, "denied" if is_denied else "error")
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
    """Read these sections and send them to the parent; `ends`: {section: deadline}."""
    initial_state, memory_limit = state(), memory() + GROWTH
    for name in names:
        die_with_parent(prctl, parent, max(0.0, ends[name] - time.monotonic()) + SPARE)
        note.write("")
        section_request = dict(request, note=note.write, end=ends[name])
        send(writer, ANSWER, encode(section(name, root, section_request)))
        if state() != initial_state or memory() > memory_limit:
            send(writer, STOP, b"")
            return


def state() -> "tuple[int, str | None, bool]":
    """What a collector may change: (open descriptors, directory, whether it has a child)."""
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor, attempt(os.getcwd)[0], has_child()


def has_child() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def memory() -> int:
    """The peak memory of this process, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
