"""A child process in a session of its own: start it, read, write, and end it reliably."""

import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, cast

import msgspec

from nodevet.base.printable import last_line
from nodevet.fleet.model import FleetError

STALL = 30  # seconds of silence beyond the time of its work, after which a child counts as dead
READ = 1 << 20  # bytes at once: several answers of nodes
ENDING = 0.5  # seconds for a child to end after it closed its output
KILLED = 5  # seconds for the kernel to end a killed child
TAIL = 4096  # last bytes of its stderr


class StalledError(Exception):
    """The child does not read its input."""


class Ending(msgspec.Struct, frozen=True):
    """How a child ended; as text `was killed by signal 9`, `exited with 1: No module ...`."""

    code: int  # negative: the signal
    stderr: bytes  # its last bytes

    def __str__(self) -> str:
        by_signal = self.code < 0
        ending = f"was killed by signal {-self.code}" if by_signal else f"exited with {self.code}"
        last = last_line(self.stderr)
        return f"{ending}: {last}" if last else ending


class ChildProcess:
    """A child in a session of its own, so that Ctrl-C on the terminal reaches only the parent."""

    ending: float = ENDING

    def __init__(
        self,
        argv: Sequence[str],
        stdin: bytes | None = None,
        errors: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`stdin`: its whole input; None: a pipe, for `write`. `errors`: the file for its stderr.
        `environment`: None for that of this process. Raises FleetError."""
        try:
            self._errors, self._process = _start(argv, stdin, errors, environment)
        except OSError as error:
            why = f"cannot start a child process: {error.strerror}"
            raise FleetError(f"{why} ({error.filename or _folder()})") from error
        self.output = cast(IO[bytes], self._process.stdout)
        with suppress(OSError):  # the user may have reached the limit of memory for pipes
            fcntl.fcntl(self.output, fcntl.F_SETPIPE_SZ, READ)
        self._writing = threading.Lock()
        self._ending: Ending | None = None
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> bytes:
        """Its new output; empty once it has closed its output."""
        return os.read(self.output.fileno(), READ)

    def write(self, data: bytes, seconds: float) -> None:
        """Write all of `data` to the pipe; threads may do so at the same time.

        Raises StalledError if the child does not read it in time, OSError if the child is gone,
        ValueError after `hang_up`.
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
        """Close the pipe, which asks the child to end by itself."""
        with self._writing, suppress(OSError):
            cast(IO[bytes], self._process.stdin).close()

    def stop(self) -> None:
        """End the child now; `end` reaps it."""
        self.kill()

    def kill(self) -> None:
        """Kill the child and its session. One that runs as root (sudo) ends at its own deadline."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> Ending:
        """Kill the child if it still runs, and reap it. The same thread may call this again."""
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
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  (files there have no name)


def _anonymous_file() -> IO[bytes]:
    """A file that no other process can open, and that ends with its last descriptor."""
    try:
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        return os.fdopen(os.open(_folder(), flags, 0o600), "w+b")
    except OSError:  # the file system does not support it, or the folder does not exist
        from tempfile import TemporaryFile  # takes longer to import than this whole module

        return TemporaryFile()


def _start(
    argv: Sequence[str],
    stdin: bytes | None,
    errors: IO[bytes] | None,
    environment: Mapping[str, str] | None,
) -> tuple[IO[bytes], subprocess.Popen[bytes]]:
    """The file of its stderr, and the process. Raises OSError."""
    with ExitStack() as stack:
        errors = stack.enter_context(errors or _anonymous_file())
        with ExitStack() as inputs:
            source: int | IO[bytes] = subprocess.PIPE
            if stdin is not None:
                source = inputs.enter_context(_anonymous_file())
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
