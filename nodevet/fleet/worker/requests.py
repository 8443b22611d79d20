"""A worker's child: reads requests, lets each host's session answer, until its stdin ends.

Its stdin ends when the parent closes it or is gone, whatever ended it; then every session is
closed, and with them the locks.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore
from gevent.os import make_nonblocking, nb_read
from gevent.pool import Pool

from nodevet.fleet.protocol import framing
from nodevet.fleet.worker.batch import (
    CLOSING,
    FILES_PER_HOST,
    Deadline,
    FrameWriter,
    hosts_of,
    open_files,
    prepare,
    transports_of,
)
from nodevet.fleet.worker.session import HostSession, SessionError

READ = 1 << 16


class RequestServer:
    """Answers the requests of all hosts, those of one host one after the other."""

    def __init__(self, writer: FrameWriter) -> None:
        self.sessions: dict[int, HostSession] = {}
        self._turns: dict[int, BoundedSemaphore] = {}
        self._writer = writer

    def answer(self, request: dict[str, Any]) -> None:
        """Write one answer, whatever happens."""
        said: dict[str, Any]
        try:
            turn = self._turns.setdefault(request["host"], BoundedSemaphore())
            with turn:
                said = {"result": self._do(**request)}
        except SessionError as fault:
            said = {"status": fault.status, "why": str(fault), **fault.more}
        except Exception as error:  # a fault of ours must not cost the other hosts
            said = {"status": "failed", "why": f"nodevet failed: {type(error).__name__}: {error}"}
        self._writer.put(json.dumps({"id": request["id"], **said}).encode() + b"\n")

    def _do(self, *, id: int, host: int, do: str, seconds: float, fenced: bool, **rest: Any) -> Any:
        session = self.sessions[host]
        session.fenced = session.fenced or fenced
        try:
            with gevent.Timeout(seconds, Deadline()):
                return getattr(session, f"do_{do}")(seconds=seconds, **rest)
        except Deadline:
            why = f"no answer within {seconds:g} s ({session.stage})"
            session.drop(why)
            raise SessionError("timeout", why) from None


def main() -> None:
    """Serve the requests on stdin: one line for the order, then one for each request."""
    make_nonblocking(0)
    lines = _lines()
    order = framing.read_order(next(lines))
    prepare(max(1, min(len(order.targets), open_files() // FILES_PER_HOST)))
    writer = FrameWriter(sys.stdout.fileno())
    transports = transports_of(order)
    server = RequestServer(writer)

    for target, host in hosts_of(order, transports):
        server.sessions[target.number] = HostSession(host, target, order)
    for line in lines:
        gevent.spawn(server.answer, json.loads(line))
    with gevent.Timeout(CLOSING, False):
        closing = Pool()
        for session in server.sessions.values():
            closing.spawn(session.drop, "closed")
        closing.join()
        transports.close()
    os._exit(0)  # threads may still wait for a name server; there is nothing left to do


def _lines() -> Iterator[bytes]:
    """The lines on stdin, until it ends."""
    text = bytearray()
    while chunk := nb_read(0, READ):
        text += chunk
        *whole, rest = text.split(b"\n") if b"\n" in chunk else (text,)
        for line in whole:
            yield bytes(line)
        text = bytearray(rest)
