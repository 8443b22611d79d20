"""A worker: a child process that holds the sessions of some hosts, and its replacement."""

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
ENDING = 2  # seconds to learn how a child ended that takes no more input
NAME = "the process that keeps the SSH sessions"
REPEATABLE = ("open", "close")  # requests that need no session


class GoneError(WorkError):
    """The child is gone: nobody knows whether it did its request."""

    def __init__(self, why: str) -> None:
        super().__init__("lost", why)


class Worker:
    """A child process for some hosts, which is replaced if it dies."""

    def __init__(self, order: BatchOrder) -> None:
        """Raises FleetError."""
        self._order = order
        self._mutex = threading.Lock()
        self._closed = False
        self._client = RequestClient(order)

    @property
    def pid(self) -> int:
        """The process id of the present child."""
        return self._client.pid

    def ask(self, request: SessionRequest) -> SessionAnswer:
        """The answer to one request. Raises WorkError and LockedError.

        If the child dies, a request that needs no session is repeated.
        """
        try:
            return self._live_client().ask(request)
        except GoneError:
            if request.do not in REPEATABLE or self._closed:
                raise
        return self._live_client().ask(request)

    def _live_client(self) -> "RequestClient":
        """The child, replaced if it is gone. Raises WorkError."""
        with self._mutex:
            if self._client.is_gone and not self._closed:
                self._client.hang_up()
                self._client.end()
                try:
                    self._client = RequestClient(self._order)
                except FleetError as error:
                    raise WorkError("unreachable", str(error)) from error
            return self._client

    def hang_up(self) -> None:
        """Let the child close its sessions and end; it is not replaced."""
        with self._mutex:
            self._closed = True
            self._client.hang_up()

    def end(self) -> None:
        self._client.end()


class RequestClient:
    """One child process, its open requests, and the thread that reads its answers."""

    def __init__(self, order: BatchOrder) -> None:
        """Raises FleetError."""
        self._waiting: dict[int, Future[SessionAnswer]] = {}
        self._verbs: dict[int, str] = {}  # what each request does
        self._mutex = threading.Lock()  # of the two above
        self._last = 0
        self._ending = ""  # why the child is gone
        self._limit = order.body_limit
        self._process = ChildProcess([sys.executable, "-I", "-m", PROGRAM])
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        try:
            self._write(framing.write_order(replace(order, payload=b"")), child.STALL)
        except (WorkError, StalledError) as error:
            self._kill("did not take its order")
            self.end()
            raise FleetError(self._ending) from error

    @property
    def is_gone(self) -> bool:
        """Whether the child holds no sessions any more."""
        return bool(self._ending)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: SessionRequest) -> SessionAnswer:
        """The answer to one request.

        Raises WorkError, LockedError, and GoneError if the child died while it had the request.
        """
        future: Future[SessionAnswer] = Future()
        patience = request.seconds + child.STALL
        with self._mutex:
            self._last += 1
            number = self._last
            self._waiting[number] = future
            self._verbs[number] = request.do
        try:
            self._write(framing.write_request(number, request), patience)
            answer = future.result(patience)
        except (FutureTimeoutError, StalledError):
            self._kill("hung and was killed")
            raise WorkError("lost", self._ending) from None
        finally:
            with self._mutex:
                self._waiting.pop(number, None)
        if answer.status == "gone":
            raise GoneError(answer.why)
        if isinstance(answer.result, LockHolder):
            raise LockedError(answer.result.who, answer.result.since, answer.result.running)
        if answer.status:
            raise WorkError(answer.status, answer.why)
        return answer

    def hang_up(self) -> None:
        """Let the child close its sessions and end."""
        self._process.hang_up()

    def end(self) -> None:
        self._reader.join(CLOSING)
        self._kill("was ended")
        self._reader.join()

    def _kill(self, why: str) -> None:
        """Kill the child and its session; it gets no more requests."""
        self._ending = self._ending or f"{NAME} {why}"
        self._process.kill()

    def _write(self, frame: bytes, patience: float) -> None:
        """Raises GoneError if the child is gone, and StalledError if it does not read."""
        try:
            self._process.write(frame, patience)
        except ValueError as error:
            raise GoneError(self._ending or "the sessions were closed") from error
        except OSError as error:
            self._reader.join(ENDING)
            self._kill("takes no requests")
            raise GoneError(self._ending) from error

    def _read_answers(self) -> None:
        """Pass each answer to its caller until the child is gone; then tell all callers."""
        reader = FrameReader(self._limit)
        try:
            while chunk := self._process.read():
                for frame in reader.take(chunk):
                    with self._mutex:
                        number, answer = framing.read_answer(frame, self._verbs)
                        del self._verbs[number]
                        future = self._waiting.pop(number, None)
                    if future is not None:
                        future.set_result(answer)
        except (framing.FrameError, OSError) as error:
            self._kill(f"wrote malformed output: {error}")
        ending = self._process.end()
        self._ending = self._ending or f"{NAME} {ending}"
        with self._mutex:
            futures, self._waiting = self._waiting, {}
        for future in futures.values():
            future.set_result(SessionAnswer("gone", self._ending))
