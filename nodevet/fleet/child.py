"""A child process of a sweep: started with its input, read without waiting, ended for sure."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, cast

from nodevet.fleet.command import last_line

READ = 1 << 20


class Child:
    """Runs in a session of its own, so that a Ctrl-C on the terminal reaches the parent alone."""

    def __init__(self, argv: Sequence[str], stdin: bytes) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by end()
        with tempfile.TemporaryFile() as order:
            order.write(stdin)
            order.seek(0)
            self._process = subprocess.Popen(
                argv,
                stdin=order,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        self.output = cast(IO[bytes], self._process.stdout)

    def read(self) -> bytes:
        """What it has written since; empty once it has closed its output."""
        return os.read(self.output.fileno(), READ)

    def kill(self) -> None:
        """Kill it and all it started. One that runs as root (sudo) ends at its own deadline."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> tuple[int, bytes]:
        """Kill what is left of it; its exit code and the end of its stderr."""
        if not self.output.closed:
            self.output.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)  # it closed its output, so it is about to end
            self.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        code = self._process.returncode
        return (-1 if code is None else code), self._complaint()

    def _complaint(self) -> bytes:
        if self._errors.closed:
            return b""
        with self._errors as errors:
            size = errors.seek(0, os.SEEK_END)
            errors.seek(max(0, size - 4096))
            return errors.read()


def ended(code: int, stderr: bytes) -> str:
    """How a child ended, for people: `was killed by signal 9`, `ended with 1: No module ...`."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    last = last_line(stderr)
    return f"{how}: {last}" if last else how
