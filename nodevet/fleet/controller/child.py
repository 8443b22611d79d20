"""A child process: started in a session of its own, read and written to, ended for sure."""

import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, cast

from nodevet.base.printable import last_line
from nodevet.fleet.model import FleetError

STALL = 30  # seconds beyond the time of its work, after which a silent child is taken for dead
READ = 1 << 20  # bytes at once: several answers of nodes
ENDING = 0.5  # seconds for one to end that has closed its output
KILLED = 5  # seconds for the kernel to end one that was killed
TAIL = 4096  # bytes of its stderr


class StalledError(Exception):
    """The child does not read what is written to it."""


@dataclass(frozen=True)
class Ending:
    """How a child ended. For people: `was killed by signal 9`, `exited with 1: No module ...`."""

    code: int  # negative: the signal
    stderr: bytes  # its last bytes

    def __str__(self) -> str:
        killed = self.code < 0
        how = f"was killed by signal {-self.code}" if killed else f"exited with {self.code}"
        last = last_line(self.stderr)
        return f"{how}: {last}" if last else how


class ChildProcess:
    """Its session is its own, so that a Ctrl-C on the terminal reaches the parent alone."""

    ending: float = ENDING

    def __init__(
        self,
        argv: Sequence[str],
        stdin: bytes | None = None,
        errors: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`stdin`: all its input; None: a pipe, for `write`. `errors`: what takes its stderr.
        `environment`: None for that of this process.

        Raises FleetError.
        """
        try:
            self._errors, self._process = _start(argv, stdin, errors, environment)
        except OSError as error:
            why = f"cannot start a child process: {error.strerror}"
            raise FleetError(f"{why} ({error.filename or _folder()})") from error
        self.output = cast(IO[bytes], self._process.stdout)
        with suppress(OSError):  # a user may have used up what pipes may take
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, READ)
        self._writing = threading.Lock()
        self._ending: Ending | None = None
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> bytes:
        """What it has written since; empty once it has closed its output."""
        return os.read(self.output.fileno(), READ)

    def write(self, data: bytes, seconds: float) -> None:
        """Write to the pipe, all of it; threads may do so at the same time.

        Raises StalledError if it does not read it in time, OSError if it is gone, ValueError
        after `hang_up`.
        """
        end, rest = time.monotonic() + seconds, memoryview(data)
        with self._writing:
            descriptor = cast(IO[bytes], self._process.stdin).fileno()
            ready = select.poll()
            ready.register(descriptor, select.POLLOUT)
            while rest:
                if not ready.poll(max(0.0, end - time.monotonic()) * 1000):
                    raise StalledError
                rest = rest[os.write(descriptor, rest) :]

    def hang_up(self) -> None:
        """Close the pipe, which asks it to end by itself."""
        with self._writing, suppress(OSError):
            cast(IO[bytes], self._process.stdin).close()

    def stop(self) -> None:
        """Have it end now; `end` collects it."""
        self.kill()

    def kill(self) -> None:
        """Kill it and all it started. One that runs as root (sudo) ends at its own deadline."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> Ending:
        """Kill what is left of it, and collect it. May be called again, by the same thread."""
        if self._ending is None:
            self.output.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(self.ending)
            self.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(KILLED)
            if self._process.stdin is not None:
                self.hang_up()
            code = self._process.returncode
            self._ending = Ending(-signal.SIGKILL if code is None else code, self._tail())
        return self._ending

    def _tail(self) -> bytes:
        with self._errors as errors:
            size = errors.seek(0, os.SEEK_END)
            errors.seek(max(0, size - TAIL))
            return errors.read()


def _folder() -> str:
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  (what is there has no name)


def _unnamed() -> IO[bytes]:
    """A file that no one else can open, and that is gone with its last descriptor."""
    try:
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        return os.fdopen(os.open(_folder(), flags, 0o600), "w+b")
    except OSError:  # a file system that has no such thing, or a folder that is not there
        from tempfile import TemporaryFile  # which takes longer to import than all of this module

        return TemporaryFile()


def _start(
    argv: Sequence[str],
    stdin: bytes | None,
    errors: IO[bytes] | None,
    environment: Mapping[str, str] | None,
) -> tuple[IO[bytes], subprocess.Popen[bytes]]:
    """The file that takes its stderr, and the process. Raises OSError."""
    with ExitStack() as stack:
        errors = stack.enter_context(errors or _unnamed())
        with ExitStack() as given:
            source: int | IO[bytes] = subprocess.PIPE
            if stdin is not None:
                source = given.enter_context(_unnamed())
                source.write(stdin)
                source.seek(0)
            process = subprocess.Popen(
                argv,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        stack.pop_all()  # closed by end()
    return errors, process
