"""A worker's child process as its parent has it, and another one in its place when it is gone."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from nodevet.fleet import FleetError
from nodevet.fleet.controller.child import ended as how_it_ended
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.fleet.protocol import framing

PROGRAM = "nodevet.fleet.worker.serve"
STALL = 30  # seconds beyond a request's own time, after which the child is taken for dead
CLOSING = 10  # seconds for the child to close its sessions
ENDING = 2  # seconds in which it is known how a child ended that took no more
KEEPER = "the process that keeps the sessions"
REPEATABLE = ("open", "close")  # what finds its host as well without a session


class GoneError(WorkError):
    """The child is gone, and what it had in hand is lost: nobody knows whether it was done."""

    def __init__(self, why: str) -> None:
        super().__init__("lost", why)


class Post:
    """A child process for some hosts, and the next one when it is gone."""

    def __init__(self, order: framing.BatchOrder) -> None:
        """Raises FleetError."""
        self._order = order
        self._guard = threading.Lock()
        self._over = False
        self._child = _Child(order)

    def ask(self, request: dict[str, Any], patience: float) -> Any:
        """The result of one request. Raises WorkError and LockedError.

        A request that costs nothing to repeat is, where the child dies of something else.
        """
        try:
            return self._there().ask(request, patience)
        except GoneError:
            if request["do"] not in REPEATABLE or self._over:
                raise
        return self._there().ask(request, patience)

    def _there(self) -> "_Child":
        """The child, a new one where it is gone. Raises WorkError."""
        with self._guard:
            if self._child.gone and not self._over:
                self._child.hang_up()
                self._child.end()
                try:
                    self._child = _Child(self._order)
                except FleetError as error:
                    raise WorkError("unreachable", str(error)) from error
            return self._child

    def hang_up(self) -> None:
        """Let it close its sessions and end; there is no other one then."""
        with self._guard:
            self._over = True
            self._child.hang_up()

    def end(self) -> None:
        self._child.end()


class _Child:
    """The child process, and the thread that hears it."""

    def __init__(self, order: framing.BatchOrder) -> None:
        self._waiting: dict[int, Future[Any]] = {}
        self._guard = threading.Lock()  # of what is above
        self._writing = threading.Lock()
        self._last = 0
        self._gone = ""  # why it is
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by end()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # a Ctrl-C on the terminal reaches the parent alone
            )
        except OSError as error:
            self._errors.close()
            raise FleetError(f"cannot start a process for sessions: {error.strerror}") from error
        self._stdin = cast(Any, self._process.stdin).fileno()
        os.set_blocking(self._stdin, False)
        self._ear = threading.Thread(target=self._hear, daemon=True, name="nodevet worker")
        self._ear.start()
        try:
            self._write(framing.write_order(replace(order, payload=b"")), STALL)
        except (WorkError, FutureTimeoutError) as error:
            self._kill("does not take its work")
            self.end()
            raise FleetError(f"{KEEPER} cannot be used: {self._gone}") from error

    @property
    def gone(self) -> bool:
        """Whether it keeps no sessions any more."""
        return bool(self._gone)

    def ask(self, request: dict[str, Any], patience: float) -> Any:
        """The result of one request. Raises WorkError, LockedError, and GoneError where it died
        while it had the request."""
        answer: Future[Any] = Future()
        with self._guard:
            self._last += 1
            number = self._last
            self._waiting[number] = answer
        try:
            self._write(json.dumps({"id": number, **request}).encode() + b"\n", patience)
            said = answer.result(patience)
        except FutureTimeoutError:
            self._kill("hangs")
            raise WorkError("lost", f"{KEEPER} hangs, and was ended") from None
        finally:
            with self._guard:
                self._waiting.pop(number, None)
        if "status" not in said:
            return said["result"]
        if said["status"] == "gone":
            raise GoneError(said["why"])
        if said["status"] == "locked":
            raise LockedError(said["who"], said["since"], said["running"])
        raise WorkError(said["status"], said["why"])

    def hang_up(self) -> None:
        """Let it close its sessions and end."""
        with self._writing, suppress(OSError):
            self._stdin = -1
            cast(Any, self._process.stdin).close()

    def end(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING)
        self._kill("ended")
        self._process.wait()
        self._ear.join()
        cast(Any, self._process.stdout).close()
        self._errors.close()

    def _kill(self, why: str) -> None:
        """Kill it and all it started; nobody is to ask it from now on."""
        self._gone = self._gone or f"{KEEPER} {why}"
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _write(self, text: bytes, patience: float) -> None:
        """Raises GoneError where it is gone, and FutureTimeoutError where it does not read."""
        end = time.monotonic() + patience
        rest = memoryview(text)
        with self._writing:
            try:
                ready = select.poll()
                ready.register(self._stdin, select.POLLOUT)
                while rest:
                    if not ready.poll(max(0.0, end - time.monotonic()) * 1000):
                        raise FutureTimeoutError
                    rest = rest[os.write(self._stdin, rest[: select.PIPE_BUF]) :]
            except ValueError as error:  # after hang_up
                raise GoneError(self._gone or "the sessions were closed") from error
            except OSError as error:
                self._ear.join(ENDING)
                self._kill("does not listen")
                raise GoneError(self._gone) from error

    def _hear(self) -> None:
        """Give each answer to its caller, until the child is gone; then all of them know."""
        try:
            for line in cast(Any, self._process.stdout):
                said = json.loads(line)
                with self._guard:
                    answer = self._waiting.pop(said["id"], None)
                if answer is not None:
                    answer.set_result(said)
        except (ValueError, KeyError, TypeError, OSError) as error:
            why = f"wrote nonsense: {type(error).__name__}: {error}"
            self._kill(why)
        how = self._ended()
        self._gone = self._gone or f"{KEEPER} {how}"
        with self._guard:
            lost, self._waiting = self._waiting, {}
        for answer in lost.values():
            answer.set_result({"status": "gone", "why": self._gone})

    def _ended(self) -> str:
        code = self._process.wait()
        size = os.fstat(self._errors.fileno()).st_size
        return how_it_ended(code, os.pread(self._errors.fileno(), 4096, max(0, size - 4096)))
