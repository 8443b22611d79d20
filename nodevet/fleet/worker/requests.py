"""A worker's child: read requests and let each host's session answer, until stdin ends.

stdin ends if the parent closes it or ends for any reason; then the child closes every session, and
with them the locks.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore
from gevent.os import make_nonblocking, nb_read
from gevent.pool import Pool

from nodevet.base.durations import elapsed
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.framing import Frame, FrameReader, SessionAnswer, SessionRequest
from nodevet.fleet.worker.batch import (
    CLOSING,
    FILES_PER_HOST,
    INTERNAL,
    Deadline,
    FrameWriter,
    nodes_of,
    open_files,
    prepare,
    transports_of,
)
from nodevet.fleet.worker.session import HostSession, SessionError

READ = 1 << 16
INTERRUPTED = "nodevet ended before the host answered"


class RequestServer:
    """Answers requests; those of one host one after the other."""

    def __init__(self, writer: FrameWriter) -> None:
        self.sessions: dict[int, HostSession] = {}
        self._turns: dict[int, BoundedSemaphore] = {}
        self._writer = writer

    def answer(self, number: int, request: SessionRequest) -> None:
        """Write the answer to a request, whatever happens."""
        try:
            with self._turns.setdefault(request.host, BoundedSemaphore()):
                result = self._do(request)
            field = "body" if isinstance(result, bytes) else "result"
            answer = SessionAnswer(**{field: result})
        except SessionError as error:
            answer = SessionAnswer(error.status, str(error), error.holder)
        except Exception as error:  # a fault of ours must not cost the other hosts
            answer = SessionAnswer("failed", f"{INTERNAL}: {type(error).__name__}: {error}")
        self._writer.put(framing.write_answer(number, answer))

    def _do(self, request: SessionRequest) -> Any:
        session, seconds = self.sessions[request.host], request.seconds
        session.fenced = session.fenced or request.fenced
        body = {"body": request.body} if request.body else {}
        try:
            with gevent.Timeout(seconds, Deadline()):
                do = getattr(session, f"do_{request.do}")
                return do(seconds=seconds, **request.arguments, **body)
        except Deadline:
            why = f"timed out after {elapsed(seconds)} ({session.stage})"
            session.drop(why)
            raise SessionError("timeout", why) from None


def main() -> None:
    """Serve the requests on stdin: one frame for the order, then one for each request."""
    make_nonblocking(0)
    frames = _frames()
    order = framing.read_order(next(frames))
    prepare(max(1, min(len(order.targets), open_files() // FILES_PER_HOST)))
    transports = transports_of(order)
    server = RequestServer(FrameWriter(sys.stdout.fileno()))
    for target, node in nodes_of(order, transports):
        server.sessions[target.number] = HostSession(node, target, order)
    for frame in frames:
        gevent.spawn(server.answer, *framing.read_request(frame))
    with gevent.Timeout(CLOSING, False):
        closing = Pool()
        for session in server.sessions.values():
            closing.spawn(session.drop, INTERRUPTED)
        closing.join()
        transports.close()
    os._exit(0)  # threads may still wait for a name server; there is nothing left to do


def _frames() -> Iterator[Frame]:
    """The frames on stdin, until it ends."""
    reader = FrameReader(framing.INPUT_LIMIT)
    while chunk := nb_read(0, READ):
        yield from reader.take(chunk)
