"""The parent's side of a visit: starts the children, hears them, and loses no host."""

import math
import os
import selectors
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from nodevet.fleet.controller.local import LocalProbe
from nodevet.fleet.model import FleetError, Options, Visit
from nodevet.model import Host

if TYPE_CHECKING:
    from nodevet.fleet.controller.launched import LauncherRun
    from nodevet.fleet.controller.shards import Shard

    Source = Shard | LocalProbe | LauncherRun


class Dispatcher:
    """The child processes at work."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._sources: list[Source] = []

    def add(self, source: "Source") -> None:
        self._sources.append(source)
        self._selector.register(source.child.output, selectors.EVENT_READ, source)

    @property
    def size(self) -> int:
        return len(self._sources)

    def hear(self, until: float) -> list[Visit]:
        """Wait until a child says something, ends, or is silent for too long; and no longer."""
        soonest = min(until, *(source.due for source in self._sources))
        ready = self._selector.select(max(0.0, soonest - time.monotonic()))
        visits: list[Visit] = []
        for key, _ in ready:
            source: Source = key.data
            chunk = source.child.read()
            if chunk:
                visits += source.take(chunk)
            else:
                visits += self._dismiss(source, late=False)
        now = time.monotonic()
        for source in [source for source in self._sources if source.due <= now]:
            visits += self._dismiss(source, late=True)
        return visits

    def pause(self, seconds: float) -> None:
        """The caller was busy for so long, and no child could be heard."""
        for source in self._sources:
            source.due += seconds

    def end(self) -> None:
        """Kill what still runs, all at once, then collect it."""
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


def dispatch(hosts: Sequence[Host], options: Options, until: float = math.inf) -> Generator[Visit]:
    """The visits, until all are done or it is `until`; see nodevet.fleet.visit."""
    local = deque(host for host in hosts if host.local)
    at_once = min(options.parallel, 2 * cpus())
    dispatcher = Dispatcher()
    try:
        if others := [host for host in hosts if not host.local]:
            for one in _elsewhere(others, options):
                if isinstance(one, Visit):
                    yield one
                else:
                    dispatcher.add(one)
        remote = dispatcher.size
        while time.monotonic() < until:
            while local and dispatcher.size < remote + at_once:
                dispatcher.add(LocalProbe(local.popleft(), options))
            if not dispatcher.size:
                return
            for visit in dispatcher.hear(until):
                before = time.monotonic()
                yield visit
                dispatcher.pause(time.monotonic() - before)
    finally:
        dispatcher.end()


def _elsewhere(hosts: Sequence[Host], options: Options) -> "Iterator[Source | Visit]":
    """What visits hosts over SSH: shards here, and launchers; and who cannot be visited at all.

    Raises FleetError.
    """
    from nodevet.fleet.controller.shards import shards  # this machine needs none

    if options.engine is None:
        yield from shards(hosts, options, cpus())
        return
    from nodevet.fleet.controller.launched import LauncherRuns

    routed: list[tuple[Host, tuple[str, ...]]] = []
    here: list[Host] = []
    for host in hosts:
        try:
            route = options.engine.route(host)
        except ValueError as error:
            raise FleetError(str(error)) from error
        if route:
            routed.append((host, route))
        else:
            here.append(host)
    yield from shards(here, options, cpus())
    yield from LauncherRuns(routed, options, options.engine).start()


def cpus() -> int:
    """How many CPUs this machine has."""
    return os.cpu_count() or 1
