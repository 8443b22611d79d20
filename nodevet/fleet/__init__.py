"""Reaching nodes. With resource/ the only importer of pyinfra, and only in the shard process.

`visit` goes to every host and yields how each visit ended. Importing this package
must stay cheap: the shard process does it before it patches gevent, and a
node-local run never needs more.
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

GENTLER = 4  # times fewer hosts at once in the second try: what was too busy may be so still


def visit(hosts: Sequence[Host], options: Options) -> Generator[Visit]:
    """Visit every host and yield each exactly once, as it finishes.

    With `second_try` what may pass is tried once more when all others are done. Closing the
    iterator ends every child process; what was not yielded was not finished. Raises FleetError
    if no host can be visited at all.
    """
    until = math.inf if options.within is None else time.monotonic() + options.within
    left = {host.name: host for host in hosts}
    held: dict[str, Visit] = {}
    with closing(_pass(hosts, options, until)) as visits:
        for one in visits:
            if options.second_try and one.again:
                held[one.host] = one
                continue
            del left[one.host]
            yield one
    if held and time.monotonic() < until:
        gentle = replace(options, parallel=max(1, options.parallel // GENTLER))
        with closing(_pass([left[name] for name in held], gentle, until)) as visits:
            for one in visits:
                del left[one.host]
                yield replace(one, first=held.pop(one.host).why)
    for name in left:
        yield held[name] if name in held else _not_reached(name, options)


def _pass(hosts: Sequence[Host], options: Options, until: float) -> Generator[Visit]:
    from nodevet.fleet.controller.dispatcher import dispatch

    with closing(dispatch(hosts, options, until)) as visits:
        for one in visits:
            yield replace(one, at=time.time())


def _not_reached(name: str, options: Options) -> Visit:
    from nodevet.model import Status

    why = f"not done within {elapsed(options.within or 0)}, the deadline of the whole run"
    return Visit(name, Status.INTERRUPTED, why, at=time.time())
