"""Run an inventory program without input, with limits on its time and its output."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from nodevet.base.durations import elapsed
from nodevet.base.printable import last_line
from nodevet.base.programs import running
from nodevet.inventory.documents import MAX_BYTES
from nodevet.inventory.errors import inventory_error

DEADLINE = 60.0
"""Seconds. A cloud's API may be slow, but a hung one must not hang the sweep."""


MAX_OUTPUT = 4 * MAX_BYTES
LAST = 64 * 1024  # the last bytes of its standard error, which nodevet keeps


class OutputError(Exception):
    """The program printed more than `MAX_OUTPUT`."""


def output(command: Sequence[str], name: str, env: Mapping[str, str] | None = None) -> bytes:
    """The program's standard output. Raises InventoryError if it fails. `name`: for messages;
    `env`: its environment, by default nodevet's."""
    try:
        with running(
            command,
            _stop_session,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=env,
        ) as process:
            stdout, stderr = _collect(process, time.monotonic() + DEADLINE)
    except OutputError:
        text = f"printed more than {MAX_OUTPUT // 2**20} MiB"
        raise inventory_error(name, text) from None
    except subprocess.TimeoutExpired:
        text = f"did not end within {elapsed(DEADLINE)}"
        raise inventory_error(name, text, "run it alone to find out what it waits for") from None
    except OSError as error:
        raise inventory_error(name, f"cannot be run: {error.strerror}") from None
    if process.returncode != 0:
        text = f"ended with {_ending(process.returncode)}"
        last = last_line(stderr)
        advice_text = f"its last line: {last}" if last else "it printed no error"
        raise inventory_error(name, text, advice_text)
    return stdout


def _stop_session(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _collect(process: "subprocess.Popen[bytes]", end: float) -> tuple[bytes, bytes]:
    """All output and the last errors of a program that ends before `end`. Raises TimeoutExpired and
    OutputError."""
    stdout, stderr = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout or 0, selectors.EVENT_READ, stdout)
        selector.register(process.stderr or 0, selectors.EVENT_READ, stderr)
        while selector.get_map():
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, DEADLINE)
            for key, _ in ready:
                chunk = os.read(key.fd, LAST)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
            if len(stdout) > MAX_OUTPUT:
                raise OutputError
            del stderr[:-LAST]
    process.wait(max(0.0, end - time.monotonic()))
    return bytes(stdout), bytes(stderr)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"
