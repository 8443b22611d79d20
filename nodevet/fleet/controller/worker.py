"""A worker: a child process that keeps sessions to some hosts, and the next one when it is gone."""

import sys
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace

from nodevet.fleet.controller import child
from nodevet.fleet.controller.child import ChildProcess, StalledError
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.fleet.model import FleetError
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.framing import (
    BatchOrder,
    FrameReader,
    LockHolder,
    SessionAnswer,
    SessionRequest,
)

PROGRAM = "nodevet.fleet.worker.serve"
CLOSING = 10  # seconds for the child to close its sessions
ENDING = 2  # seconds in which it is known how a child ended that took no more
NAME = "the process that keeps the SSH sessions"
REPEATABLE = ("open", "close")  # what finds its host as well without a session


class GoneError(WorkError):
    """The child is gone, and what it was working on is lost: it is unknown whether it was done."""

    def __init__(self, why: str) -> None:
        super().__init__("lost", why)


class Worker:
    """A child process for some hosts, and the next one when it is gone."""

    def __init__(self, order: BatchOrder) -> None:
        """Raises FleetError."""
        self._order = order
        self._guard = threading.Lock()
        self._over = False
        self._client = RequestClient(order)

    @property
    def pid(self) -> int:
        """Of the child that keeps the sessions now."""
        return self._client.pid

    def ask(self, request: SessionRequest) -> SessionAnswer:
        """The answer to one request. Raises WorkError and LockedError.

        A request that costs nothing to repeat is, if the child dies of something else.
        """
        try:
            return self._there().ask(request)
        except GoneError:
            if request.do not in REPEATABLE or self._over:
                raise
        return self._there().ask(request)

    def _there(self) -> "RequestClient":
        """The child, a new one if it is gone. Raises WorkError."""
        with self._guard:
            if self._client.gone and not self._over:
                self._client.hang_up()
                self._client.end()
                try:
                    self._client = RequestClient(self._order)
                except FleetError as error:
                    raise WorkError("unreachable", str(error)) from error
            return self._client

    def hang_up(self) -> None:
        """Let it close its sessions and end; there is no other one then."""
        with self._guard:
            self._over = True
            self._client.hang_up()

    def end(self) -> None:
        self._client.end()


class RequestClient:
    """One child process, the requests that it works on, and the thread that hears it."""

    def __init__(self, order: BatchOrder) -> None:
        """Raises FleetError."""
        self._waiting: dict[int, Future[SessionAnswer]] = {}
        self._asked: dict[int, str] = {}  # what each of them is to do
        self._guard = threading.Lock()  # of what is above
        self._last = 0
        self._gone = ""  # why it is
        self._limit = order.body_limit
        self._process = ChildProcess([sys.executable, "-I", "-m", PROGRAM])
        self._ear = threading.Thread(target=self._hear, daemon=True, name="nodevet worker")
        self._ear.start()
        try:
            self._write(framing.write_order(replace(order, payload=b"")), child.STALL)
        except (WorkError, StalledError) as error:
            self._kill("did not take its order")
            self.end()
            raise FleetError(self._gone) from error

    @property
    def gone(self) -> bool:
        """Whether it keeps no sessions any more."""
        return bool(self._gone)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: SessionRequest) -> SessionAnswer:
        """The answer to one request.

        Raises WorkError, LockedError, and GoneError if the child died while it had the request.
        """
        coming: Future[SessionAnswer] = Future()
        patience = request.seconds + child.STALL
        with self._guard:
            self._last += 1
            number = self._last
            self._waiting[number] = coming
            self._asked[number] = request.do
        try:
            self._write(framing.write_request(number, request), patience)
            answer = coming.result(patience)
        except (FutureTimeoutError, StalledError):
            self._kill("hung and was killed")
            raise WorkError("lost", self._gone) from None
        finally:
            with self._guard:
                self._waiting.pop(number, None)
        if answer.status == "gone":
            raise GoneError(answer.why)
        if isinstance(answer.result, LockHolder):
            raise LockedError(answer.result.who, answer.result.since, answer.result.running)
        if answer.status:
            raise WorkError(answer.status, answer.why)
        return answer

    def hang_up(self) -> None:
        """Let it close its sessions and end."""
        self._process.hang_up()

    def end(self) -> None:
        self._ear.join(CLOSING)
        self._kill("was ended")
        self._ear.join()

    def _kill(self, why: str) -> None:
        """Kill it and all it started; it is asked nothing from now on."""
        self._gone = self._gone or f"{NAME} {why}"
        self._process.kill()

    def _write(self, frame: bytes, patience: float) -> None:
        """Raises GoneError if it is gone, and StalledError if it does not read."""
        try:
            self._process.write(frame, patience)
        except ValueError as error:
            raise GoneError(self._gone or "the sessions were closed") from error
        except OSError as error:
            self._ear.join(ENDING)
            self._kill("takes no requests")
            raise GoneError(self._gone) from error

    def _hear(self) -> None:
        """Give each answer to its caller, until the child is gone; then all of them know."""
        reader = FrameReader(self._limit)
        try:
            while chunk := self._process.read():
                for frame in reader.take(chunk):
                    with self._guard:
                        number, answer = framing.read_answer(frame, self._asked)
                        del self._asked[number]
                        coming = self._waiting.pop(number, None)
                    if coming is not None:
                        coming.set_result(answer)
        except (framing.FrameError, OSError) as error:
            self._kill(f"wrote malformed output: {error}")
        ending = self._process.end()
        self._gone = self._gone or f"{NAME} {ending}"
        with self._guard:
            lost, self._waiting = self._waiting, {}
        for coming in lost.values():
            coming.set_result(SessionAnswer("gone", self._gone))
