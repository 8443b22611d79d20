"""One session per host for as long as work is done there: `Worker`.

A child process keeps the connections; this side asks it in JSON lines and is safe to use from
many threads. Times in seconds.
"""

import base64
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, cast

import msgspec

from nodevet.fix import File, Kernel, Run, Seen, Touch, Unit
from nodevet.fleet import FleetError, Options, wire
from nodevet.fleet.child import ended
from nodevet.fleet.shards import check_files, orders
from nodevet.model import Host

PROGRAM = "nodevet.fleet.worker"
STALL = 30  # seconds beyond a request's own time, after which the child is taken for dead
CLOSING = 10  # seconds for the child to close its sessions


class WorkError(Exception):
    """A call that came to no answer; `why` is for people.

    `status`: unreachable (no session), timeout (no answer in time), lost (the session is gone,
    or was never opened), failed (the node answers, but not what was asked). After lost, and
    after timeout, the host has no session until it is opened again.
    """

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class LockedError(Exception):
    """Somebody else holds the node's lock: `who`, `since` (ISO 8601, by the node's clock).

    Or nobody does, and what they began under it still runs: its processes, `running`.
    """

    def __init__(self, who: str, since: str, running: str = "") -> None:
        told = f"locked by {who}" + (f" since {since}" if since else "")
        super().__init__(
            f"{told}, of whose commands one still runs: {running}" if running else told
        )
        self.who = who
        self.since = since
        self.running = running


@dataclass(frozen=True)
class Acted:
    """How a command ended: `code` 124 or 137 where it was ended for taking too long."""

    ok: bool
    code: int
    output: str  # the end of its stdout, then of its stderr; printable


@dataclass(frozen=True)
class Users:
    """Who uses GPUs, in the form of the evidence's sections."""

    gpus: tuple[Mapping[str, Any], ...] | None  # uuid, minor, pids; None: no NVML on the node
    processes: tuple[Mapping[str, Any], ...]  # as nodevet.evidence.Process
    complete: bool  # whether every process could be looked at


class Worker:
    """Sessions to hosts. Blocking; threads may use it for different hosts at the same time.

    A host's calls wait for one another. Every call ends within its own time: Options.deadline,
    or `seconds`. Raises FleetError where nothing can be reached at all.
    """

    def __init__(self, hosts: Sequence[Host], options: Options) -> None:
        remote = [host for host in hosts if not host.local]
        self._options = options
        self._local = {host.name for host in hosts if host.local}
        self._places: dict[str, tuple[_Child, int]] = {}
        self._turns = {host.name: threading.Lock() for host in remote}
        self._children: list[_Child] = []
        if not remote:
            return
        check_files(options)
        try:
            for order in orders(remote, options, 1):
                child = _Child(order)
                self._children.append(child)
                for target in order.targets:
                    self._places[target.name] = (child, target.number)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Close every session and end the child processes. May be called again."""
        for child in self._children:
            child.hang_up()
        for child in self._children:
            child.end()

    def open(self, host: str) -> None:
        """Connect, unless there is a session."""
        self._ask(host, "open")

    def close(self, host: str) -> None:
        """End the session, and with it the lock."""
        self._ask(host, "close")

    def probe(self, host: str) -> bytes:
        """The evidence document."""
        return base64.b64decode(self._ask(host, "probe"))

    def look(self, host: str, touches: Sequence[Touch]) -> tuple[Seen, ...]:
        """What the touches are now, in their order."""
        found = self._hand(host, "look", touches)
        return tuple(
            Seen(touch=touch, exists=each["exists"], value=each["value"], why=each["why"])
            for touch, each in zip(touches, found, strict=True)
        )

    def owners(self, host: str, touches: Sequence[Touch]) -> Mapping[str, tuple[str, ...]]:
        """Who else would set each touch: label -> places, `unit x.service (file:line)`."""
        found = self._hand(host, "owners", touches)
        return {touch.label: tuple(each) for touch, each in zip(touches, found, strict=True)}

    def users(self, host: str) -> Users:
        """Who uses GPUs now."""
        found = self._ask(host, "hand", ask="users")
        gpus = found["gpus"]
        return Users(
            None if gpus is None else tuple(gpus), tuple(found["processes"]), found["complete"]
        )

    def lock(self, host: str, who: str) -> None:
        """Held until `close`, `reboot`, or the session is lost. Raises LockedError.

        From the first time on, `act` and `reboot` need it: without it they are `lost`.
        """
        self._ask(host, "lock", who=who)

    def act(
        self, host: str, action: File | Kernel | Unit | Run, *, seconds: float | None = None
    ) -> Acted:
        """Do one thing on the node. After a WorkError nobody knows whether it was done."""
        if seconds is None and isinstance(action, Run) and action.seconds is not None:
            seconds = max(action.seconds, self._options.deadline)
        text = msgspec.json.encode(action).decode()
        return Acted(**self._ask(host, "act", seconds=seconds, action=text))

    def reboot(self, host: str, *, seconds: float) -> str:
        """Reboot, and wait for another boot id, which is returned; the lock is gone."""
        return str(self._ask(host, "reboot", seconds=seconds))

    def _hand(self, host: str, ask: str, touches: Sequence[Touch]) -> list[Any]:
        asked = [{"kind": touch.kind, "name": touch.name} for touch in touches]
        found = self._ask(host, "hand", ask=ask, touches=asked) if asked else []
        if not isinstance(found, list) or len(found) != len(asked):
            raise WorkError("failed", "the node's answer makes no sense")
        return found

    def _ask(self, host: str, do: str, *, seconds: float | None = None, **rest: Any) -> Any:
        if host in self._local:
            raise WorkError("unreachable", "fixes go over SSH only, and this host is @local")
        child, number = self._places[host]
        with self._turns[host]:
            limit = self._options.deadline if seconds is None else seconds
            return child.ask({"host": number, "do": do, "seconds": limit, **rest}, limit + STALL)


class _Child:
    """The child process, and the thread that hears it."""

    def __init__(self, order: wire.Order) -> None:
        self._waiting: dict[int, Future[Any]] = {}
        self._guard = threading.Lock()  # of what is above
        self._writing = threading.Lock()
        self._last = 0
        self._gone = ""
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
        self._write(wire.write_order(replace(order, payload=b"")), STALL)

    def ask(self, request: dict[str, Any], patience: float) -> Any:
        """The result of one request. Raises WorkError and LockedError."""
        answer: Future[Any] = Future()
        with self._guard:
            self._last += 1
            number = self._last
            self._waiting[number] = answer
        try:
            self._write(json.dumps({"id": number, **request}).encode() + b"\n", patience)
            said = answer.result(patience)
        except FutureTimeoutError:
            self._kill()
            raise WorkError("lost", "the process that keeps the sessions hangs") from None
        finally:
            with self._guard:
                self._waiting.pop(number, None)
        if "status" not in said:
            return said["result"]
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
        self._kill()
        self._process.wait()
        self._ear.join()
        cast(Any, self._process.stdout).close()
        self._errors.close()

    def _kill(self) -> None:
        """Kill it and all it started."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _write(self, text: bytes, patience: float) -> None:
        """Raises WorkError where it is gone, and FutureTimeoutError where it does not read."""
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
            except (OSError, ValueError) as error:
                raise WorkError("lost", self._gone or "the sessions were closed") from error

    def _hear(self) -> None:
        """Give each answer to its caller, until the child is gone; then all of them know."""
        why = ""
        try:
            for line in cast(Any, self._process.stdout):
                said = json.loads(line)
                with self._guard:
                    answer = self._waiting.pop(said["id"], None)
                if answer is not None:
                    answer.set_result(said)
        except (ValueError, KeyError, TypeError, OSError) as error:
            why = f"wrote nonsense: {type(error).__name__}: {error}"
            self._kill()
        self._gone = f"the process that keeps the sessions {why or self._ended()}"
        with self._guard:
            lost, self._waiting = self._waiting, {}
        for answer in lost.values():
            answer.set_result({"status": "lost", "why": self._gone})

    def _ended(self) -> str:
        code = self._process.wait()
        size = os.fstat(self._errors.fileno()).st_size
        return ended(code, os.pread(self._errors.fileno(), 4096, max(0, size - 4096)))
