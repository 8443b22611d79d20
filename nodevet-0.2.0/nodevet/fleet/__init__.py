"""Reach nodes. Besides resource/ the only importer of pyinfra, and only in the shard process.

`visit` visits every host and yields how each visit ended. This package must stay cheap to import:
the shard process imports it before it patches gevent, and a node-local run never needs more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from nodevet.base.durations import elapsed
from nodevet.fleet.model import FleetError, Options, Visit

if TYPE_CHECKING:
    from nodevet.model import Host

__all__ = ["FleetError", "Options", "Visit", "visit"]

GENTLER = 4  # times fewer hosts at once in the second try: a network or host may still be busy


def visit(hosts: Sequence[Host], options: Options) -> Generator[Visit]:
    """Visit every host and yield exactly one Visit for each, as it finishes.

    With `second_try`, hosts whose failure may be temporary are visited again after all others.
    Closing the iterator ends every child process and unfinished visit. Raises FleetError if no host
    can be visited at all.
    """
    end = math.inf if options.within is None else time.monotonic() + options.within
    unvisited = {host.name: host for host in hosts}
    retries: dict[str, Visit] = {}
    with closing(_pass(hosts, options, end)) as visits:
        for result in visits:
            if options.second_try and result.again:
                retries[result.host] = result
                continue
            del unvisited[result.host]
            yield result
    if retries and time.monotonic() < end:
        gentle = replace(options, parallel=max(1, options.parallel // GENTLER))
        with closing(_pass([unvisited[name] for name in retries], gentle, end)) as visits:
            for result in visits:
                del unvisited[result.host]
                yield replace(result, first=retries.pop(result.host).why)
    for name in unvisited:
        yield retries[name] if name in retries else _not_reached(name, options)


def _pass(hosts: Sequence[Host], options: Options, end: float) -> Generator[Visit]:
    from nodevet.fleet.controller.dispatcher import dispatch

    with closing(dispatch(hosts, options, end)) as visits:
        for result in visits:
            if options.on_steps is not None and result.steps:
                options.on_steps(result.host, result.steps)
            yield replace(result, at=time.time())


def _not_reached(name: str, options: Options) -> Visit:
    from nodevet.model import Status

    why = f"not done within {elapsed(options.within or 0)}, the deadline of the whole run"
    return Visit(name, Status.INTERRUPTED, why, at=time.time())
