"""The work of a shard: visit the hosts of one order, a sliding window of them at a time."""

import gc
import logging
import os
import resource
import secrets
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from select import POLLERR, POLLHUP

import gevent
from gevent.event import Event
from gevent.monkey import get_original
from gevent.os import make_nonblocking, nb_write
from gevent.pool import Pool

from nodevet.base.durations import elapsed
from nodevet.fleet.protocol import commands, framing
from nodevet.fleet.protocol.exchange import Answer, AnswerError, request
from nodevet.fleet.ssh.errors import (
    NoSessionError,
    SshConfigError,
    TooLateError,
    is_local,
    may_pass,
)
from nodevet.fleet.ssh.host_config import SshConfig
from nodevet.fleet.ssh.node import NoAnswerError, NodeConnection
from nodevet.fleet.ssh.transport import Transports

FILES_PER_HOST = 6  # both ends to a jump host, libssh's socket; the agent, both ends to libssh
INTERNAL = "internal error (please report)"
LOOK = 0.5  # seconds between two checks that the parent exists
MOST_WAITING = 2 << 20  # bytes of answers that the parent has yet to read
GARBAGE = 10_000  # objects between two garbage collections: a connection makes hundreds that stay
CLOSING = 5  # seconds that closing one connection may take


class Deadline(BaseException):
    """The host's deadline has passed. Not an Exception, so that no library can swallow it."""


class FrameWriter:
    """Writes messages to the parent. A slow parent does not delay running visits; new visits wait
    until there is room for their answers."""

    def __init__(self, descriptor: int) -> None:
        make_nonblocking(descriptor)
        self._descriptor = descriptor
        self._queue: deque[bytes] = deque()
        self._more = Event()
        self._room = Event()
        self._room.set()
        self._waiting = 0  # bytes
        self._over = False
        self._greenlet = gevent.spawn(self._run)
        self._watch = gevent.spawn(self._watch_parent)

    def put(self, message: bytes) -> None:
        """Queue a message; waits while more than MOST_WAITING bytes are queued."""
        self._queue.append(message)
        self._waiting += len(message)
        if self._waiting > MOST_WAITING:
            self._room.clear()
        self._more.set()
        self._room.wait()

    def finish(self) -> None:
        self._over = True
        self._more.set()
        self._greenlet.get()
        self._watch.kill()

    def _watch_parent(self) -> None:
        """Exit if the parent has ended, even with nothing to write: programs on the hosts end with
        their connections."""
        poll = get_original("select", "poll")()
        poll.register(self._descriptor, 0)
        while not any(event & (POLLERR | POLLHUP) for _, event in poll.poll(0)):
            gevent.sleep(LOOK)
        os._exit(1)

    def _run(self) -> None:
        while True:
            while self._queue:
                message = self._queue.popleft()
                rest = memoryview(message)
                while rest:
                    try:
                        rest = rest[nb_write(self._descriptor, rest) :]
                    except BrokenPipeError:  # the parent has ended
                        os._exit(1)
                self._waiting -= len(message)
                if self._waiting <= MOST_WAITING:
                    self._room.set()
            if self._over:
                return
            self._more.wait()
            self._more.clear()


class Batch:
    """Visits single hosts, and returns an outcome whatever happens."""

    def __init__(self, order: framing.BatchOrder) -> None:
        self._order = order

    def visit(self, node: NodeConnection, target: framing.SshTarget) -> framing.VisitOutcome:
        started = time.monotonic()
        try:
            with gevent.Timeout(self._order.deadline, Deadline()):
                outcome = self._ask(node, target)
        except Deadline:
            why = f"timed out after {elapsed(self._order.deadline)} ({node.stage})"
            outcome = framing.VisitOutcome("timeout", why, again=True)
        finally:
            with gevent.Timeout(CLOSING, False):
                node.close()
        steps = tuple(node.connection.steps) if self._order.verbose else ()
        return replace(outcome, seconds=time.monotonic() - started, steps=steps)

    def _ask(self, node: NodeConnection, target: framing.SshTarget) -> framing.VisitOutcome:
        order = self._order
        nonce = secrets.token_hex(8)
        answer = Answer(nonce, order.max_output)
        try:
            line = commands.command(
                python=target.python, sudo=target.sudo, seconds=order.probe_deadline
            )
            node.connect()
            probe_line = probe_request(order, target, nonce)
            evidence = node.ask(line, order.payload + probe_line, answer)
            return framing.VisitOutcome("vetted", "", evidence)
        except TooLateError as error:
            return framing.VisitOutcome("timeout", str(error), again=True)
        except (NoSessionError, SshConfigError) as error:
            status = "not_visited" if is_local(error) else "unreachable"
            return framing.VisitOutcome(status, str(error), again=may_pass(error))
        except NoAnswerError as error:
            return no_answer_outcome(error, answer, target.python, order.probe_deadline)
        except commands.CommandError as error:
            return framing.VisitOutcome("not_visited", str(error))
        except AnswerError as error:
            return framing.VisitOutcome("probe_failed", str(error))
        except Exception as error:  # a fault of ours must not cost the other hosts
            why = f"{INTERNAL}: {type(error).__name__}: {error}"
            return framing.VisitOutcome("probe_failed", why[:300])


def probe_request(order: framing.BatchOrder, target: framing.SshTarget, nonce: str) -> bytes:
    """The request to the probe on a host, with the present time."""
    return request(
        nonce=nonce,
        root=target.root,
        whole_machine=target.whole_machine,
        deadline=order.probe_deadline,
        asked_s=time.time(),
        sample=order.sample,
        asks=order.asks[target.asks],
        sections=order.sections,
        packed=True,
    )


def no_answer_outcome(
    error: NoAnswerError, answer: Answer, python: str | None, seconds: float
) -> framing.VisitOutcome:
    """The outcome of a program on a node that ended without an answer."""
    if commands.timed_out(error.code):
        return framing.VisitOutcome(
            "timeout", f"timed out after {elapsed(seconds)} (running the probe)", again=True
        )
    output = None if answer.has_begun else answer.output
    why = commands.explain(error.code, error.stderr, python=python, output=output)
    if answer.has_begun or error.code == 0:
        why = answer.missing() + (f"; {why}" if error.code else "")
    return framing.VisitOutcome("probe_failed", why)


def prepare(threads: int) -> None:
    """Make the libraries quiet and fit for many hosts at once."""
    logging.disable(logging.CRITICAL)
    # a jump host's errors: its waiters hear of them
    gevent.get_hub().NOT_ERROR += (NoSessionError, SshConfigError)
    gevent.get_hub().threadpool.maxsize = threads  # a slow name server holds up its own hosts only


def main() -> None:
    """Read the order from stdin, visit, write outcomes to stdout."""
    order = framing.read_order(framing.read_frame(sys.stdin.buffer.read()))
    parallel = min(order.parallel, open_files() // FILES_PER_HOST)
    prepare(parallel)
    writer = FrameWriter(sys.stdout.fileno())
    transports = transports_of(order)
    batch = Batch(order)
    gc.freeze()  # what was imported stays: looking for garbage in it takes a tenth of the time
    gc.set_threshold(GARBAGE)

    def visit_one(node: NodeConnection, target: framing.SshTarget) -> None:
        writer.put(framing.write_outcome(target.number, batch.visit(node, target)))

    pool = Pool(parallel)
    for target, node in nodes_of(order, transports):
        pool.spawn(visit_one, node, target)
    pool.join()
    with gevent.Timeout(CLOSING, False):
        transports.close()
    writer.finish()
    os._exit(0)  # threads may still wait for a name server; there is nothing left to do


def transports_of(order: framing.BatchOrder) -> Transports:
    return Transports(
        connect_timeout=order.connect_timeout,
        deadline=order.deadline,
        known_hosts=order.known_hosts,
        accept_new=order.accept_new,
    )


def nodes_of(
    order: framing.BatchOrder, transports: Transports
) -> Iterator[tuple[framing.SshTarget, NodeConnection]]:
    """The nodes of the targets; ssh_config is read for each when it is first connected to."""
    config = SshConfig(order.ssh_config)
    for target in order.targets:
        yield target, NodeConnection(cache(partial(config.resolve, target)), transports)


def open_files() -> int:
    """Raise the limit of open files as far as allowed; returns the number for use by visits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            soft = needed
    return max(FILES_PER_HOST, soft - 64)
