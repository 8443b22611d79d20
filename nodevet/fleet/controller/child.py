"""A child process of a sweep: started with its input, read without waiting, ended for sure."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO, cast

from nodevet.fleet import FleetError
from nodevet.fleet.protocol.commands import last_line

READ = 1 << 20


class Child:
    """Runs in a session of its own, so that a Ctrl-C on the terminal reaches the parent alone."""

    def __init__(self, argv: Sequence[str], stdin: bytes) -> None:
        """Raises FleetError where it cannot be started."""
        try:
            self._errors, self._process = _start(argv, stdin)
        except OSError as error:
            why = f"cannot start a process for the visits: {error.strerror}"
            raise FleetError(f"{why} ({error.filename or tempfile.gettempdir()})") from error
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


def _start(argv: Sequence[str], stdin: bytes) -> tuple[IO[bytes], subprocess.Popen[bytes]]:
    """The file that takes its stderr, and the process. Raises OSError."""
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile())
        with tempfile.TemporaryFile() as order:
            order.write(stdin)
            order.seek(0)
            process = subprocess.Popen(
                argv, stdin=order, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
        stack.pop_all()  # closed by end()
    return errors, process


def ended(code: int, stderr: bytes) -> str:
    """How a child ended, for people: `was killed by signal 9`, `ended with 1: No module ...`."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    last = last_line(stderr)
    return f"{how}: {last}" if last else how
