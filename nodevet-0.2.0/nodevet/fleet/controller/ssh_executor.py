"""One session per host while nodevet works there: `SshExecutor`.

A child process holds the connections; this side sends it requests in frames and is thread-safe. A
child that hangs or dies ends its sessions, and with them the locks: its running call is `lost`, and
a new child takes the next request. Times in seconds.
"""

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, cast

import msgspec

from nodevet.fleet.controller.local_session import LocalSession, decoded
from nodevet.fleet.controller.shards import ORDER_HOSTS, check_options, orders
from nodevet.fleet.controller.worker import Worker
from nodevet.fleet.launchers import NOT_ELSEWHERE
from nodevet.fleet.model import FleetError, Options
from nodevet.fleet.protocol import answers
from nodevet.fleet.protocol.framing import ActResult, SessionAnswer, SessionRequest
from nodevet.model import Host
from nodevet.resource import AnyAction, Resource, State


class SshExecutor:
    """Sessions to hosts. Blocking; threads may use it for different hosts at the same time.

    Calls for one host run one after the other. Every call ends within Options.deadline, or
    `seconds`. Raises FleetError if no host can be reached at all.
    """

    def __init__(self, hosts: Sequence[Host], options: Options) -> None:
        if options.engine is not None:
            raise FleetError(NOT_ELSEWHERE)
        remote = [host for host in hosts if not host.local]
        self._options = options
        self._local = {host.name: LocalSession(host, options) for host in hosts if host.local}
        self._places: dict[str, tuple[Worker, int]] = {}
        self._fenced: set[str] = set()  # hosts that may be changed only under a lock
        self._turns = {host.name: threading.Lock() for host in hosts}
        self._workers: list[Worker] = []
        if not remote:
            return
        check_options(options)
        try:
            for order in orders(remote, options, 1, ORDER_HOSTS):
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
        """Connect, unless a session exists."""
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
        document = self._remote_answer(host, "look", resources)
        return decoded(lambda: answers.states(document, resources))

    def managers(self, host: str, resources: Sequence[Resource]) -> Mapping[str, tuple[str, ...]]:
        """Who else would set each resource: label -> places, `unit x.service (file:line)`."""
        if not resources:
            return {}
        document = self._remote_answer(host, "managers", resources)
        return decoded(lambda: answers.managers(document, resources))

    def agents(self, host: str) -> tuple[answers.RunningAgent, ...]:
        """The configuration managers that work on the node."""
        document = self._remote_answer(host, "agents")
        return decoded(lambda: answers.agents(document))

    def lock(self, host: str, who: str) -> None:
        """Take the lock until `close`, `reboot`, or the loss of the session. Raises LockedError.

        After the first call, `act` and `reboot` need the lock: without it they are `lost`.
        """
        self._fenced.add(host)
        self._ask(host, "lock", who=who)

    def act(self, host: str, action: AnyAction, *, seconds: float | None = None) -> ActResult:
        """Do one action on the node. After a WorkError nobody knows whether it was done."""
        if seconds is None and action.longest is not None:
            seconds = max(action.longest, self._options.deadline)
        body = msgspec.json.encode(action)
        return cast(ActResult, self._ask(host, "act", seconds=seconds, body=body).result)

    def reboot(self, host: str, *, seconds: float, left: str = "") -> str:
        """Reboot, or let something else end the boot `left`; wait for a new boot id and return it;
        this ends the lock."""
        return str(self._ask(host, "reboot", seconds=seconds, left=left).result)

    def _remote_answer(self, host: str, ask: str, resources: Sequence[Resource] = ()) -> bytes:
        """The answer of nodevet.remote on the node, as the node wrote it."""
        names = [{"kind": resource.kind, "name": resource.name} for resource in resources]
        return self._ask(host, "remote", ask=ask, resources=names).body

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
            fenced = host in self._fenced  # a new child does not know this
            return worker.ask(SessionRequest(number, do, limit, fenced, arguments, body))
