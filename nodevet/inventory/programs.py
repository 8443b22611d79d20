"""Running a program that says what hosts there are: bounded in time and size, without input."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, last_line
from nodevet.base.problems import Problem
from nodevet.inventory.documents import MAX_BYTES
from nodevet.inventory.errors import InventoryError

DEADLINE = 60.0
"""Seconds. A cloud's interface may be slow; a hung one must not hang the sweep."""


def output(command: Sequence[str], name: str) -> bytes:
    """What the program prints. Raises InventoryError when it fails; `name` says whose it is."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        text = f"cannot be run: {error.strerror}"
        raise InventoryError([Problem(brief(name), "", text)]) from None
    with process:
        try:
            printed, complaint = process.communicate(timeout=DEADLINE)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            text = f"did not end within {elapsed(DEADLINE)}"
            advice = "find out what it waits for by running it alone"
            raise InventoryError([Problem(brief(name), "", text, advice)]) from None
    if process.returncode != 0:
        text = f"ended with {_ending(process.returncode)}"
        last = last_line(complaint)
        said = f"it said: {last}" if last else "it said nothing"
        raise InventoryError([Problem(brief(name), "", text, said)])
    if len(printed) > 4 * MAX_BYTES:
        text = f"printed more than {4 * MAX_BYTES // 2**20} MiB"
        raise InventoryError([Problem(brief(name), "", text)])
    return printed


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"
