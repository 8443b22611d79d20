"""Run an inventory program, bounded in time and size, without input."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from nodevet.base.durations import elapsed
from nodevet.base.printable import last_line
from nodevet.inventory.documents import MAX_BYTES
from nodevet.inventory.errors import inventory_error

DEADLINE = 60.0
"""Seconds. A cloud's API may be slow, but a hung one must not hang the sweep."""


def output(command: Sequence[str], name: str) -> bytes:
    """The program's standard output. Raises InventoryError if it fails. `name`: for messages."""
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
        raise inventory_error(name, text) from None
    with process:
        try:
            stdout, stderr = process.communicate(timeout=DEADLINE)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            text = f"did not end within {elapsed(DEADLINE)}"
            advice = "run it alone to find out what it waits for"
            raise inventory_error(name, text, advice) from None
    if process.returncode != 0:
        text = f"ended with {_ending(process.returncode)}"
        last = last_line(stderr)
        advice_text = f"its last line: {last}" if last else "it printed no error"
        raise inventory_error(name, text, advice_text)
    if len(stdout) > 4 * MAX_BYTES:
        text = f"printed more than {4 * MAX_BYTES // 2**20} MiB"
        raise inventory_error(name, text)
    return stdout


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"
