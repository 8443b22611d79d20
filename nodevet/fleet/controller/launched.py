"""Launchers at work: hosts are dealt out to them, and dealt again if one of them fails.

Every host is answered for once: a host leaves `_waiting` for one launcher, whose answer is taken
only while the host is its own; one that failed is heard no more.
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
    unfit,
)
from nodevet.model import Host, Status

RELAY = "nodevet.fleet.worker.relay"
GREETING = 60  # seconds from starting a launcher to its greeting: a pod, or a node of Slurm
LEAST = 50  # hosts of an order
TRIES = 3  # launchers that one host may go through
MOST_CPUS = 64  # of a launcher
ENDING = 10  # seconds for a launcher to end that has nothing left to do
WHY = 500  # characters

Route = tuple[str, ...]


@dataclass(frozen=True)
class LauncherFailure:
    """Why a launcher has no answer for a host; `again`: whether it may have one another time."""

    status: Status
    why: str
    again: bool = False


class LauncherRuns:
    """The hosts that launchers may reach, and who has which of them."""

    def __init__(
        self, routed: Sequence[tuple[Host, Route]], options: Options, engine: Engine
    ) -> None:
        self.options = options
        self.hosts = [host for host, _ in routed]
        self._routes = [route for _, route in routed]
        self._engine = engine
        self._left = len(routed)
        self._waiting: dict[Route, deque[int]] = {}
        for number, route in enumerate(self._routes):
            self._waiting.setdefault(route, deque()).append(number)
        self._failed: dict[str, LauncherFailure] = {}  # by launcher
        # by host, then by launcher that had it and gave no answer
        self._lost: dict[int, dict[str, LauncherFailure]] = {}
        self._running: dict[str, LauncherRun] = {}

    def start(self) -> "Iterator[LauncherRun | Visit]":
        """Start every launcher that may reach one of the hosts.

        With the visits of hosts that only such may reach as cannot be started.
        """
        names = list(dict.fromkeys(name for route in self._waiting for name in route))
        for name in names:
            try:
                run = LauncherRun(self._engine.named(name), self)
            except FleetError as error:
                yield from self._fail(name, (), LauncherFailure(Status.NOT_VISITED, str(error)))
                continue
            self._running[name] = run
            yield run

    def feed(self, run: "LauncherRun") -> None:
        """Give a launcher as much to do as it can."""
        while run.free and (numbers := self._take(run)):
            run.give(numbers)

    def answered(self, run: "LauncherRun") -> None:
        """One host is done."""
        self._left -= 1
        if not self._left:
            for each in self._running.values():
                each.finish()
        else:
            self.feed(run)

    def fail(
        self, run: "LauncherRun", numbers: Sequence[int], failure: LauncherFailure
    ) -> Iterator[Visit]:
        """A launcher is given up; its unanswered hosts go to others, or are told if there is none.

        So are those that only it could have reached.
        """
        yield from self._fail(run.launcher.name, numbers, failure)

    def _fail(self, name: str, numbers: Sequence[int], failure: LauncherFailure) -> Iterator[Visit]:
        self._running.pop(name, None)
        self._failed[name] = failure
        for number in numbers:
            self._lost.setdefault(number, {})[name] = failure
        yield from self._again(numbers)
        for route, waiting in self._waiting.items():
            if name in route:
                found, self._waiting[route] = list(waiting), deque()
                yield from self._again(found)
        self._feed_all()

    def lose(self, run: "LauncherRun", number: int, why: str) -> Iterator[Visit]:
        """A launcher goes on, and has no answer for this host."""
        failure = LauncherFailure(Status.PROBE_FAILED, why, again=True)
        self._lost.setdefault(number, {})[run.launcher.name] = failure
        yield from self._again([number])
        self._feed_all()

    def _feed_all(self) -> None:
        for each in list(self._running.values()):
            self.feed(each)

    def _again(self, numbers: Sequence[int]) -> Iterator[Visit]:
        for number in numbers:
            route, lost = self._routes[number], self._lost.get(number, {})
            failed = {name: self._failed[name] for name in route if name in self._failed}
            tried = {**failed, **lost}
            if len(tried) < len(set(route)) and len(lost) < TRIES:
                self._waiting[route].append(number)
                continue
            status = list(tried.values())[-1].status
            why = "; ".join(f"launcher {name} {each.why}" for name, each in tried.items())
            again = any(each.again for each in tried.values())
            self._left -= 1
            yield Visit(self.hosts[number].name, status, why, again=again)
        if not self._left:
            for each in self._running.values():
                each.finish()

    def _take(self, run: "LauncherRun") -> list[int]:
        """The hosts of its next order, of all sites that it may reach; fewer towards the end."""
        name = run.launcher.name
        mine = [(route, queue) for route, queue in self._waiting.items() if name in route and queue]
        share = sum(len(queue) / len(route) for route, queue in mine)
        size = run.launcher.batch or math.ceil(share / (2 * run.slots))
        size = min(shards.FEWER, max(LEAST, size))
        taken: list[int] = []
        for _, queue in mine:
            passed: list[int] = []
            while queue and len(taken) < size:
                number = queue.popleft()
                lost = name in self._lost.get(number, {})
                (passed if lost else taken).append(number)
            queue.extend(passed)
        return taken


class LauncherRun:
    """One launcher's process, and the hosts that it was given and has not answered for."""

    def __init__(self, launcher: Launcher, runs: LauncherRuns) -> None:
        """Raises FleetError."""
        self.launcher = launcher
        self.slots = 0  # none before it has greeted
        self._runs = runs
        self._options = runs.options
        self._greeting = GreetingReader()
        self._reader = FrameReader(self._options.max_output + framing.SLACK, ANSWER_HEAD)
        self._orders: dict[int, tuple[int, set[int]]] = {}  # its size, and who is not answered for
        self._order_of: dict[int, int] = {}  # by host
        self._ids = count()
        self._fault = ""
        self._over = False
        argv = (executable, "-I", "-m", RELAY) if launcher.here else launcher.command
        self.child = LauncherProcess(argv)
        self._heard = self._answered = time.monotonic()

    @property
    def due(self) -> float:
        """When it is taken for dead: it is silent, or says much and answers for nobody."""
        if self._over:
            return self._heard + ENDING
        if not self.slots:
            return self._heard + GREETING
        patience = self._patience if self._order_of else math.inf
        return min(self._heard + SILENCE, self._answered + patience)

    @due.setter
    def due(self, moment: float) -> None:
        later = moment - self.due
        self._heard += later
        self._answered += later

    @property
    def _patience(self) -> float:
        """Seconds in which it answers for a host, if it has some."""
        return self._options.deadline + 2 * child.STALL + self.launcher.patience

    @property
    def free(self) -> bool:
        """Whether it can do more: an order whose hosts are nearly all done counts no more."""
        if self._over or not self.slots or len(self._orders) >= 2 * self.slots:
            return False
        busy = [size for size, left in self._orders.values() if len(left) > size / 4]
        return len(busy) < self.slots

    def give(self, numbers: Sequence[int]) -> None:
        """Have it visit these hosts."""
        if not self._order_of:
            self._answered = time.monotonic()
        ident = next(self._ids)
        self._orders[ident] = (len(numbers), set(numbers))
        self._order_of.update(dict.fromkeys(numbers, ident))
        self.child.put(framing.write_order(self._order(numbers)))

    def finish(self) -> None:
        """Nothing is left to do; one that has not greeted need not."""
        self._over, self._heard = True, time.monotonic()
        if self.slots:
            self.child.finish()
        else:
            self.child.stop()

    def take(self, chunk: bytes) -> Iterator[Visit]:
        """The visits in what it wrote. One that writes what no launcher writes is ended."""
        if self._fault or self._over:
            return
        try:
            if not self.slots:
                told = self._greeting.take(chunk)
                if told is None:
                    return
                self._greeted(told)
                chunk = self._greeting.rest
            self._heard = time.monotonic()
            for frame in self._reader.take(chunk):
                yield from self._read(frame)
        except NoGreetingError as error:
            self._give_up(str(error))
        except FrameError as error:
            self._give_up(f"wrote malformed output: {brief(error, 200)}")

    def unfinished(self, ending: Ending, *, late: bool) -> Iterator[Visit]:
        """The hosts that no other launcher can take over, now that this one is gone.

        One that had greeted and wrote no nonsense may be there again another time.
        """
        if self._over:
            return
        status, why = Status.NOT_VISITED, self._fault
        if late and not why:
            status, why = Status.TIMEOUT, self._silent()
        elif not why:
            said = "" if self.slots else "ended without a greeting: "
            why = f"{said}{ending}"
        self._over = True
        numbers = list(self._order_of)
        self._order_of.clear()
        again = bool(self.slots) and not self._fault
        yield from self._runs.fail(self, numbers, LauncherFailure(status, why, again))

    def _greeted(self, told: Greeting) -> None:
        if why := unfit(told, greeting()):
            raise NoGreetingError(why)
        self.slots = min(told.cpus, MOST_CPUS, self._options.shards or MOST_CPUS)
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
            yield shards.visited(self._runs.hosts[number], outcome)
            self._runs.answered(self)

    def _settle(self, number: int) -> None:
        """It is done with a host. Raises FrameError if it was not asked for it, or has answered."""
        if number not in self._order_of:
            raise FrameError(f"an answer for a host that it was not asked for: {number}")
        ident = self._order_of.pop(number)
        _, left = self._orders[ident]
        left.discard(number)
        if not left:
            del self._orders[ident]
        self._answered = time.monotonic()

    def _order(self, numbers: Sequence[int]) -> framing.BatchOrder:
        """Paths of this machine stay here, but for a launcher that is here."""
        parallel = max(1, self._options.parallel // self.slots)
        if self.launcher.batch:
            parallel = min(len(numbers), self._options.parallel)
        order = shards.order_of(numbers, self._runs.hosts, self._options, parallel)
        one = self.launcher
        if one.here:
            return order
        targets = (replace(it, key_file=one.key_file, known_hosts=None) for it in order.targets)
        return replace(
            order, ssh_config=one.ssh_config, known_hosts=one.known_hosts, targets=tuple(targets)
        )

    def _silent(self) -> str:
        if not self.slots:
            return f"gave no greeting in {elapsed(GREETING)}; it wrote: {self._greeting.said}"
        if time.monotonic() - self._heard >= SILENCE:
            return f"was silent for {elapsed(SILENCE)} and was given up"
        return f"answered for no host in {elapsed(self._patience)} and was given up"
