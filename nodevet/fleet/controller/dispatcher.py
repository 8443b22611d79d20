"""The parent's side of a visit: it starts the children, reads their answers and loses no host."""

import math
import os
import selectors
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nodevet.fleet.controller.local import LocalProbe
from nodevet.fleet.model import FleetError, Options, SideWork, Visit
from nodevet.model import Host

if TYPE_CHECKING:
    from nodevet.fleet.controller.launched import LauncherRun
    from nodevet.fleet.controller.shards import Shard

    Source = Shard | LocalProbe | LauncherRun


class Dispatcher:
    """The running child processes, and work during the visits."""

    def __init__(self, side_work: SideWork | None = None) -> None:
        self._selector = selectors.DefaultSelector()
        self._sources: list[Source] = []
        self._side_work = side_work
        self._pipes: list[Any] = []  # of that work

    def add(self, source: "Source") -> None:
        self._sources.append(source)
        self._selector.register(source.child.output, selectors.EVENT_READ, source)

    @property
    def size(self) -> int:
        return len(self._sources)

    def receive(self, end: float) -> list[Visit]:
        """The visits of the next event: a child writes, ends, or is silent for too long. Waits
        until `end` at the latest. No visits if only the side work has results.
        """
        self._listen_to_side_work()
        soonest = min(end, *(source.due for source in self._sources))
        ready = self._selector.select(max(0.0, soonest - time.monotonic()))
        visits: list[Visit] = []
        for key, _ in ready:
            source: Source | None = key.data
            if source is None:
                continue
            chunk = source.child.read()
            if chunk:
                visits += source.take(chunk)
            else:
                visits += self._dismiss(source, late=False)
        if self._side_work is not None and any(key.data is None for key, _ in ready):
            before = time.monotonic()
            self._side_work.take_ready()
            self.pause(time.monotonic() - before)
        now = time.monotonic()
        for source in [source for source in self._sources if source.due <= now]:
            visits += self._dismiss(source, late=True)
        return visits

    def _listen_to_side_work(self) -> None:
        """Wait for the pipes that the side work has now."""
        pipes = list(self._side_work.pipes) if self._side_work is not None else []
        for pipe in self._pipes:
            if pipe not in pipes:
                self._selector.unregister(pipe)
        for pipe in pipes:
            if pipe not in self._pipes:
                self._selector.register(pipe, selectors.EVENT_READ)
        self._pipes = pipes

    def pause(self, seconds: float) -> None:
        """Extend all deadlines: for `seconds` the caller was busy and no child was read."""
        for source in self._sources:
            source.due += seconds

    def end(self) -> None:
        """Kill all children at once, then reap them."""
        for source in self._sources:
            source.child.stop()
        while self._sources:
            self._sources.pop().child.end()
        self._selector.close()

    def _dismiss(self, source: "Source", *, late: bool) -> list[Visit]:
        self._selector.unregister(source.child.output)
        self._sources.remove(source)
        if late:
            source.child.stop()
        return list(source.unfinished(source.child.end(), late=late))


def dispatch(hosts: Sequence[Host], options: Options, end: float = math.inf) -> Generator[Visit]:
    """The visits, until all are done or until `end` (monotonic); see nodevet.fleet.visit."""
    local = deque(host for host in hosts if host.local)
    most_local = min(options.parallel, 2 * cpus())
    dispatcher = Dispatcher(options.side_work)
    try:
        if remote_hosts := [host for host in hosts if not host.local]:
            for item in _remote_sources(remote_hosts, options):
                if isinstance(item, Visit):
                    yield item
                else:
                    dispatcher.add(item)
        remote_sources = dispatcher.size
        while time.monotonic() < end:
            while local and dispatcher.size < remote_sources + most_local:
                dispatcher.add(LocalProbe(local.popleft(), options))
            if not dispatcher.size:
                return
            for visit in dispatcher.receive(end):
                before = time.monotonic()
                yield visit
                dispatcher.pause(time.monotonic() - before)
    finally:
        dispatcher.end()


def _remote_sources(hosts: Sequence[Host], options: Options) -> "Iterator[Source | Visit]":
    """The sources for hosts over SSH: shards on this machine, and launchers; and the visits of
    hosts that no source can visit. Raises FleetError."""
    from nodevet.fleet.controller.shards import shards  # not needed for this machine itself

    if options.engine is None:
        yield from shards(hosts, options, cpus())
        return
    from nodevet.fleet.controller.launched import LauncherRuns

    routed: list[tuple[Host, tuple[str, ...]]] = []
    direct: list[Host] = []
    for host in hosts:
        try:
            route = options.engine.route(host)
        except ValueError as error:
            raise FleetError(str(error)) from error
        if route:
            routed.append((host, route))
        else:
            direct.append(host)
    yield from shards(direct, options, cpus())
    yield from LauncherRuns(routed, options, options.engine).start()


def cpus() -> int:
    return os.cpu_count() or 1
