"""Running launchers: hosts are distributed to them, and again if one of them fails.

Every host gets one answer: a host leaves `_waiting` for one launcher, whose answer counts only
while the host is assigned to it; a failed launcher is not read any more.
"""

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from sys import executable

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.fleet.controller import child, shards
from nodevet.fleet.controller.child import Ending
from nodevet.fleet.controller.launcher_process import LauncherProcess
from nodevet.fleet.launchers import Engine, Launcher
from nodevet.fleet.model import FleetError, Options, Visit
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.framing import (
    ANSWER_HEAD,
    Frame,
    FrameError,
    FrameReader,
    LauncherRefusal,
    LostHost,
)
from nodevet.fleet.protocol.greeting import (
    SILENCE,
    Greeting,
    GreetingReader,
    NoGreetingError,
    greeting,
    unfit_reason,
)
from nodevet.model import Host, Status

RELAY = "nodevet.fleet.worker.relay"
GREETING = 60  # seconds from starting a launcher to its greeting: a pod, or a node of Slurm
LEAST = 50  # hosts of an order
TRIES = 3  # launchers that may fail for one host
MOST_CPUS = 64  # of a launcher
ENDING = 10  # seconds for a launcher to end once it has nothing left to do
WHY = 500  # characters of a reason

Route = tuple[str, ...]


@dataclass(frozen=True)
class LauncherFailure:
    """Why a launcher has no answer for a host; `again`: whether another try may succeed."""

    status: Status
    why: str
    again: bool = False


class LauncherRuns:
    """The hosts that launchers may reach, and which launcher has which of them."""

    def __init__(
        self, routed: Sequence[tuple[Host, Route]], options: Options, engine: Engine
    ) -> None:
        self.options = options
        self.hosts = [host for host, _ in routed]
        self._routes = [route for _, route in routed]
        self._engine = engine
        self._unfinished = len(routed)
        self._waiting: dict[Route, deque[int]] = {}
        for number, route in enumerate(self._routes):
            self._waiting.setdefault(route, deque()).append(number)
        self._failed: dict[str, LauncherFailure] = {}  # by launcher
        # by host, then by launcher that had the host and gave no answer
        self._losses: dict[int, dict[str, LauncherFailure]] = {}
        self._running: dict[str, LauncherRun] = {}

    def start(self) -> "Iterator[LauncherRun | Visit]":
        """Start every launcher that may reach one of the hosts.

        Also yields the visits of hosts whose launchers cannot be started.
        """
        names = list(dict.fromkeys(name for route in self._waiting for name in route))
        for name in names:
            try:
                run = LauncherRun(self._engine.find_launcher(name), self)
            except FleetError as error:
                yield from self.fail(name, (), LauncherFailure(Status.NOT_VISITED, str(error)))
                continue
            self._running[name] = run
            yield run

    def feed(self, run: "LauncherRun") -> None:
        """Send a launcher as many orders as it has room for."""
        while run.has_room and (numbers := self._take(run)):
            run.send_order(numbers)

    def host_done(self, run: "LauncherRun") -> None:
        """A launcher has answered for one host."""
        self._unfinished -= 1
        if not self._unfinished:
            self._finish_all()
        else:
            self.feed(run)

    def fail(self, name: str, numbers: Sequence[int], failure: LauncherFailure) -> Iterator[Visit]:
        """Give a launcher up. Its unanswered hosts go to other launchers; yields the visits of
        hosts, also waiting ones, that no other launcher can reach."""
        self._running.pop(name, None)
        self._failed[name] = failure
        for number in numbers:
            self._losses.setdefault(number, {})[name] = failure
        yield from self._requeue(numbers)
        for route, waiting in self._waiting.items():
            if name in route:
                numbers_of_route, self._waiting[route] = list(waiting), deque()
                yield from self._requeue(numbers_of_route)
        self._feed_all()

    def lose(self, run: "LauncherRun", number: int, why: str) -> Iterator[Visit]:
        """A launcher has no answer for this host, and goes on with others."""
        failure = LauncherFailure(Status.PROBE_FAILED, why, again=True)
        self._losses.setdefault(number, {})[run.launcher.name] = failure
        yield from self._requeue([number])
        self._feed_all()

    def _feed_all(self) -> None:
        for run in list(self._running.values()):
            self.feed(run)

    def _requeue(self, numbers: Sequence[int]) -> Iterator[Visit]:
        for number in numbers:
            route, losses = self._routes[number], self._losses.get(number, {})
            failed = {name: self._failed[name] for name in route if name in self._failed}
            failures = {**failed, **losses}
            if len(failures) < len(set(route)) and len(losses) < TRIES:
                self._waiting[route].append(number)
                continue
            status = list(failures.values())[-1].status
            why = "; ".join(f"launcher {name} {failure.why}" for name, failure in failures.items())
            again = any(failure.again for failure in failures.values())
            self._unfinished -= 1
            yield Visit(self.hosts[number].name, status, why, again=again)
        if not self._unfinished:
            self._finish_all()

    def _finish_all(self) -> None:
        for run in self._running.values():
            run.finish()

    def _take(self, run: "LauncherRun") -> list[int]:
        """The hosts of a launcher's next order, from all sites that it may reach; towards the end
        orders get smaller."""
        name = run.launcher.name
        queues = {route: queue for route, queue in self._waiting.items() if name in route}
        share = sum(len(queue) / len(route) for route, queue in queues.items())
        size = run.launcher.batch or math.ceil(share / (2 * run.slots))
        size = min(shards.ORDER_HOSTS, max(LEAST, size))
        numbers: list[int] = []
        for queue in queues.values():
            skipped: list[int] = []
            while queue and len(numbers) < size:
                number = queue.popleft()
                had_it = name in self._losses.get(number, {})
                (skipped if had_it else numbers).append(number)
            queue.extend(skipped)
        return numbers


class LauncherRun:
    """One launcher's process, and the hosts for which it owes an answer."""

    def __init__(self, launcher: Launcher, runs: LauncherRuns) -> None:
        """Raises FleetError."""
        self.launcher = launcher
        self.slots = 0  # 0 before its greeting
        self._runs = runs
        self._options = runs.options
        self._greeting = GreetingReader()
        self._reader = FrameReader(self._options.max_output + framing.SLACK, ANSWER_HEAD)
        self._orders: dict[int, tuple[int, set[int]]] = {}  # its size, and its unanswered hosts
        self._order_of: dict[int, int] = {}  # by host
        self._ids = count()
        self._fault = ""
        self._finished = False
        argv = (executable, "-I", "-m", RELAY) if launcher.is_local else launcher.command
        self.child = LauncherProcess(argv)
        self._last_heard = self._last_answer = time.monotonic()

    @property
    def due(self) -> float:
        """When the launcher counts as dead: it is silent, or writes but answers for no host."""
        if self._finished:
            return self._last_heard + ENDING
        if not self.slots:
            return self._last_heard + GREETING
        patience = self._patience if self._order_of else math.inf
        return min(self._last_heard + SILENCE, self._last_answer + patience)

    @due.setter
    def due(self, moment: float) -> None:
        delay = moment - self.due
        self._last_heard += delay
        self._last_answer += delay

    @property
    def _patience(self) -> float:
        """Seconds within which a launcher that has hosts answers for one of them."""
        return self._options.deadline + 2 * child.STALL + self.launcher.patience

    @property
    def has_room(self) -> bool:
        """Whether it can take another order. An order whose hosts are nearly all done does not
        count."""
        if self._finished or not self.slots or len(self._orders) >= 2 * self.slots:
            return False
        busy = sum(len(numbers) > size / 4 for size, numbers in self._orders.values())
        return busy < self.slots

    def send_order(self, numbers: Sequence[int]) -> None:
        """Order visits to these hosts."""
        if not self._order_of:
            self._last_answer = time.monotonic()
        ident = next(self._ids)
        self._orders[ident] = (len(numbers), set(numbers))
        self._order_of.update(dict.fromkeys(numbers, ident))
        self.child.put(framing.write_order(self._order(numbers)))

    def finish(self) -> None:
        """End the launcher, since no host is left to visit."""
        self._finished, self._last_heard = True, time.monotonic()
        if self.slots:
            self.child.finish()
        else:
            self.child.stop()

    def take(self, chunk: bytes) -> Iterator[Visit]:
        """The visits in its output. A launcher that writes malformed output is ended."""
        if self._fault or self._finished:
            return
        try:
            if not self.slots:
                reply = self._greeting.take(chunk)
                if reply is None:
                    return
                self._accept(reply)
                chunk = self._greeting.rest
            self._last_heard = time.monotonic()
            for frame in self._reader.take(chunk):
                yield from self._read(frame)
        except NoGreetingError as error:
            self._give_up(str(error))
        except FrameError as error:
            self._give_up(f"wrote malformed output: {brief(error, 200)}")

    def unfinished(self, ending: Ending, *, late: bool) -> Iterator[Visit]:
        """The visits of hosts that no other launcher can take over, now that this one has ended.

        After a greeting and well-formed output another try may succeed.
        """
        if self._finished:
            return
        status, why = Status.NOT_VISITED, self._fault
        if late and not why:
            status, why = Status.TIMEOUT, self._silence_text()
        elif not why:
            prefix = "" if self.slots else "ended without a greeting: "
            why = f"{prefix}{ending}"
        self._finished = True
        numbers = list(self._order_of)
        self._order_of.clear()
        again = bool(self.slots) and not self._fault
        yield from self._runs.fail(self.launcher.name, numbers, LauncherFailure(status, why, again))

    def _accept(self, reply: Greeting) -> None:
        if why := unfit_reason(reply, greeting()):
            raise NoGreetingError(why)
        self.slots = min(reply.cpus, MOST_CPUS, self._options.shards or MOST_CPUS)
        self._runs.feed(self)

    def _give_up(self, why: str) -> None:
        self._fault = why
        self.child.stop()

    def _read(self, frame: Frame) -> Iterator[Visit]:
        notice = framing.read_notice(frame)
        if isinstance(notice, LauncherRefusal):
            raise NoGreetingError(f"refused: {brief(notice.refused, WHY)}")
        if isinstance(notice, LostHost):
            self._settle(notice.lost)
            yield from self._runs.lose(self, notice.lost, brief(notice.why, WHY))
        elif notice is None:
            number, outcome = framing.read_outcome(frame)
            outcome = replace(outcome, why=brief(outcome.why, WHY))
            self._settle(number)
            yield shards.visit_of(self._runs.hosts[number], outcome)
            self._runs.host_done(self)

    def _settle(self, number: int) -> None:
        """Note an answer for a host. Raises FrameError if the launcher does not owe one."""
        if number not in self._order_of:
            raise FrameError(f"an answer for a host that it was not asked for: {number}")
        ident = self._order_of.pop(number)
        _, open_numbers = self._orders[ident]
        open_numbers.discard(number)
        if not open_numbers:
            del self._orders[ident]
        self._last_answer = time.monotonic()

    def _order(self, numbers: Sequence[int]) -> framing.BatchOrder:
        """An order; only a launcher on this machine gets paths of this machine."""
        parallel = max(1, self._options.parallel // self.slots)
        if self.launcher.batch:
            parallel = min(len(numbers), self._options.parallel)
        order = shards.order_of(numbers, self._runs.hosts, self._options, parallel)
        launcher = self.launcher
        if launcher.is_local:
            return order
        targets = (
            replace(target, key_file=launcher.key_file, known_hosts=None)
            for target in order.targets
        )
        return replace(
            order,
            ssh_config=launcher.ssh_config,
            known_hosts=launcher.known_hosts,
            targets=tuple(targets),
        )

    def _silence_text(self) -> str:
        if not self.slots:
            wrote = self._greeting.last_output
            return f"gave no greeting in {elapsed(GREETING)}; it wrote: {wrote}"
        if time.monotonic() - self._last_heard >= SILENCE:
            return f"was silent for {elapsed(SILENCE)} and was given up"
        return f"answered for no host in {elapsed(self._patience)} and was given up"
