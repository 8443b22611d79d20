"""Run a program that is gone when we are, even if Ctrl-C falls into its start."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from nodevet.base.interrupts import Interrupts

GRACE = 0.1  # seconds from one SIGTERM to the next
TERMS = 20  # the most SIGTERM before SIGKILL
"""A program that catches SIGTERM sets the terminal's echo again. ssh-keygen misses a signal that
arrives just before it reads, so that it needs another one."""


@contextmanager
def running(
    command: Sequence[str],
    stop: Callable[["subprocess.Popen[bytes]"], None] | None = None,
    **options: Any,
) -> Iterator["subprocess.Popen[bytes]"]:
    """A program that `stop`, by default some SIGTERM and then SIGKILL, ends if the block raises.

    `options`: see subprocess.Popen. Raises OSError if it cannot be run.
    """
    interrupts = Interrupts()
    interrupts.hold()  # an interrupt inside of Popen would lose the process
    try:
        process = subprocess.Popen(command, **options)
    except BaseException:
        interrupts.release()
        raise
    with process:
        try:
            interrupts.release()
            yield process
        except BaseException:
            (stop or _stop)(process)
            raise


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for _time in range(TERMS):
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
            return
    process.kill()
    process.wait()
