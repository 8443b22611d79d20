"""One session per host for as long as work is done there: `SshExecutor`.

A child process keeps the connections; this side asks it in frames and is safe to use from
many threads. A child that hangs or dies ends its sessions, and with them the locks: a call that it
was working on is `lost`, and another child does whatever is asked next. Times in seconds.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar, cast

import msgspec

from nodevet.fleet.controller.local_session import LocalSession
from nodevet.fleet.controller.shards import FEWER, check_files, orders
from nodevet.fleet.controller.worker import Worker
from nodevet.fleet.executor import Acted, WorkError
from nodevet.fleet.launchers import NOT_ELSEWHERE
from nodevet.fleet.model import FleetError, Options
from nodevet.fleet.protocol import answers
from nodevet.fleet.protocol.framing import ActResult, SessionAnswer, SessionRequest
from nodevet.model import Host
from nodevet.resource import AnyAction, Resource, RunCommand, State

Found = TypeVar("Found")


class SshExecutor:
    """Sessions to hosts. Blocking; threads may use it for different hosts at the same time.

    A host's calls wait for one another. Every call ends within its own time: Options.deadline,
    or `seconds`. Raises FleetError if no host can be reached at all.
    """

    def __init__(self, hosts: Sequence[Host], options: Options) -> None:
        if options.engine is not None:
            raise FleetError(NOT_ELSEWHERE)
        remote = [host for host in hosts if not host.local]
        self._options = options
        self._local = {host.name: LocalSession(host, options) for host in hosts if host.local}
        self._places: dict[str, tuple[Worker, int]] = {}
        self._fenced: set[str] = set()  # hosts that are changed under a lock alone
        self._turns = {host.name: threading.Lock() for host in hosts}
        self._workers: list[Worker] = []
        if not remote:
            return
        check_files(options)
        try:
            for order in orders(remote, options, 1, FEWER):
                worker = Worker(order)
                self._workers.append(worker)
                for target in order.targets:
                    self._places[target.name] = (worker, target.number)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> "SshExecutor":
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
        for session in self._local.values():
            session.close()
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.end()

    def open(self, host: str) -> None:
        """Connect, unless there is a session."""
        self._ask(host, "open")

    def close(self, host: str) -> None:
        """End the session, and with it the lock."""
        self._ask(host, "close")

    def probe(self, host: str) -> bytes:
        """The evidence document."""
        return self._ask(host, "probe").body

    def look(self, host: str, resources: Sequence[Resource]) -> tuple[State, ...]:
        """The state of each resource, in their order."""
        if not resources:
            return ()
        found = self._found(host, "look", resources)
        return _usable(lambda: answers.looked(found, resources))

    def managers(self, host: str, resources: Sequence[Resource]) -> Mapping[str, tuple[str, ...]]:
        """Who else would set each resource: label -> places, `unit x.service (file:line)`."""
        if not resources:
            return {}
        found = self._found(host, "managers", resources)
        return _usable(lambda: answers.managers(found, resources))

    def agents(self, host: str) -> tuple[answers.RunningAgent, ...]:
        """The configuration managers that work on the node."""
        found = self._found(host, "agents")
        return _usable(lambda: answers.agents(found))

    def lock(self, host: str, who: str) -> None:
        """Held until `close`, `reboot`, or the session is lost. Raises LockedError.

        From the first time on, `act` and `reboot` need it: without it they are `lost`.
        """
        self._fenced.add(host)
        self._ask(host, "lock", who=who)

    def act(self, host: str, action: AnyAction, *, seconds: float | None = None) -> Acted:
        """Do one thing on the node. After a WorkError it is unknown whether it was done."""
        if seconds is None and isinstance(action, RunCommand) and action.seconds is not None:
            seconds = max(action.seconds, self._options.deadline)
        body = msgspec.json.encode(action)
        result = cast(ActResult, self._ask(host, "act", seconds=seconds, body=body).result)
        return Acted(result.ok, result.code, result.output)

    def reboot(self, host: str, *, seconds: float) -> str:
        """Reboot, and wait for another boot id, which is returned; the lock is gone."""
        return str(self._ask(host, "reboot", seconds=seconds).result)

    def _found(self, host: str, ask: str, resources: Sequence[Resource] = ()) -> bytes:
        """What nodevet.remote finds on the node, as the node wrote it."""
        asked = [{"kind": resource.kind, "name": resource.name} for resource in resources]
        return self._ask(host, "remote", ask=ask, resources=asked).body

    def _ask(
        self,
        host: str,
        do: str,
        *,
        seconds: float | None = None,
        body: bytes = b"",
        **arguments: Any,
    ) -> SessionAnswer:
        limit = self._options.deadline if seconds is None else seconds
        if host in self._local:
            with self._turns[host]:
                return self._local[host].ask(do, limit, body, **arguments)
        worker, number = self._places[host]
        with self._turns[host]:
            fenced = host in self._fenced  # a new child does not know
            return worker.ask(SessionRequest(number, do, limit, fenced, arguments, body))


def _usable(decode: Callable[[], Found]) -> Found:
    """Raises WorkError for a malformed answer of the node."""
    try:
        return decode()
    except answers.MalformedError as error:
        raise WorkError("failed", str(error)) from error
