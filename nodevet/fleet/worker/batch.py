"""A shard's work: visit the hosts of one order, a sliding window of them at a time."""

import gc
import logging
import os
import resource
import secrets
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from select import POLLERR, POLLHUP
from typing import cast

import gevent
from gevent.event import Event
from gevent.monkey import get_original
from gevent.os import make_nonblocking, nb_write
from gevent.pool import Pool
from pyinfra.api import inventory
from pyinfra.api.config import Config
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors.ssh_util import _patch_paramiko_sk_key_support

from nodevet.base.durations import elapsed
from nodevet.fleet.protocol import commands, framing
from nodevet.fleet.protocol.payload import Answer, AnswerError, request
from nodevet.fleet.ssh.connector import NoAnswerError, NodeConnector
from nodevet.fleet.ssh.errors import SshConfigError, TooLateError, is_local, may_pass
from nodevet.fleet.ssh.host_config import SshConfig
from nodevet.fleet.ssh.transport import Transports

FILES_PER_HOST = 4  # socket, agent, both ends of a proxy command
INTERNAL = "internal error (please report)"
LOOK = 0.5  # seconds between two looks whether the parent is there
MOST_WAITING = 8 << 20  # bytes of answers that the parent has yet to read
GARBAGE = 10_000  # objects between two looks for it: a connection makes hundreds that stay
CLOSING = 5  # seconds that closing one connection may take
PORTION = 100  # hosts; pyinfra's State takes time with the square of them, and keeps them all


class Deadline(BaseException):
    """The host's time is over. Not an Exception, so that no library can swallow it."""


class FrameWriter:
    """Writes messages to the parent; a parent that is slow to read holds up no host that is being
    visited, and no more hosts are begun than have room here."""

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
        """Returns at once, or once less than MOST_WAITING waits."""
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
        """End with the parent, also while there is nothing to write: what was started on the hosts
        ends with the connections to them."""
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
                    except BrokenPipeError:  # the parent is gone, and with it the reason to go on
                        os._exit(1)
                self._waiting -= len(message)
                if self._waiting <= MOST_WAITING:
                    self._room.set()
            if self._over:
                return
            self._more.wait()
            self._more.clear()


class Batch:
    """Visits single hosts. Whatever happens there, an outcome comes back."""

    def __init__(self, order: framing.BatchOrder) -> None:
        self._order = order

    def visit(self, host: Host, target: framing.SshTarget) -> framing.VisitOutcome:
        started = time.monotonic()
        connector = cast(NodeConnector, host.connector)
        try:
            with gevent.Timeout(self._order.deadline, Deadline()):
                outcome = self._ask(connector, target)
        except Deadline:
            why = f"timed out after {elapsed(self._order.deadline)} ({connector.stage})"
            outcome = framing.VisitOutcome("timeout", why, again=True)
        finally:
            with gevent.Timeout(CLOSING, False):
                connector.disconnect()
            host.connector = None  # type: ignore[assignment]  # and what it held
        return replace(outcome, seconds=time.monotonic() - started)

    def _ask(self, connector: NodeConnector, target: framing.SshTarget) -> framing.VisitOutcome:
        order = self._order
        nonce = secrets.token_hex(8)
        answer = Answer(nonce, order.max_output)
        try:
            line = commands.command(
                python=target.python, sudo=target.sudo, seconds=order.probe_deadline
            )
            connector.connect()
            wish = probe_request(order, target, nonce)
            return framing.VisitOutcome(
                "vetted", "", connector.ask(line, order.payload + wish, answer)
            )
        except TooLateError as error:
            return framing.VisitOutcome("timeout", str(error), again=True)
        except (ConnectError, SshConfigError) as error:
            status = "not_visited" if is_local(error) else "unreachable"
            return framing.VisitOutcome(status, str(error), again=may_pass(error))
        except NoAnswerError as error:
            return unanswered(error, answer, target.python, order.probe_deadline)
        except commands.CommandError as error:
            return framing.VisitOutcome("not_visited", str(error))
        except AnswerError as error:
            return framing.VisitOutcome("probe_failed", str(error))
        except Exception as error:  # a fault of ours must not cost the other hosts
            why = f"{INTERNAL}: {type(error).__name__}: {error}"
            return framing.VisitOutcome("probe_failed", why[:300])


def probe_request(order: framing.BatchOrder, target: framing.SshTarget, nonce: str) -> bytes:
    """What the probe is asked on a host, from now on."""
    return request(
        nonce=nonce,
        root=target.root,
        whole_machine=target.whole_machine,
        deadline=order.probe_deadline,
        asked_s=time.time(),
        sample=order.sample,
        asks=order.asks[target.asks],
    )


def unanswered(
    error: NoAnswerError, answer: Answer, python: str | None, seconds: float
) -> framing.VisitOutcome:
    """How a program that was sent to a node ended without an answer."""
    if commands.timed_out(error.code):
        return framing.VisitOutcome(
            "timeout", f"timed out after {elapsed(seconds)} (running the probe)", again=True
        )
    said = None if answer.begun else answer.said
    why = commands.explain(error.code, error.stderr, python=python, said=said)
    if answer.begun or error.code == 0:
        why = answer.missing() + (f"; {why}" if error.code else "")
    return framing.VisitOutcome("probe_failed", why)


def prepare(threads: int) -> None:
    """Make the libraries quiet and fit for many hosts at once."""
    for name in ("paramiko", "pyinfra"):
        logging.getLogger(name).disabled = True
    logging.disable(logging.CRITICAL)
    _patch_paramiko_sk_key_support()
    # every inventory asks which connectors there are, and so what every installed package says
    inventory.get_all_connectors = cache(inventory.get_all_connectors)  # type: ignore[attr-defined]
    gevent.get_hub().NOT_ERROR += (
        ConnectError,
        SshConfigError,
    )  # a jump host's, told to its waiters
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

    def one(host: Host, target: framing.SshTarget) -> None:
        writer.put(framing.write_outcome(target.number, batch.visit(host, target)))

    pool = Pool(parallel)
    for target, host in hosts_of(order, transports):
        pool.spawn(one, host, target)
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


def hosts_of(
    order: framing.BatchOrder, transports: Transports
) -> Iterator[tuple[framing.SshTarget, Host]]:
    """pyinfra's hosts for the targets, each resolved when it is first connected to, once.

    They are made in portions, as they are asked for, so that those that are done leave nothing.
    """
    config = SshConfig(order.ssh_config)
    for first in range(0, len(order.targets), PORTION):
        yield from _portion(order.targets[first : first + PORTION], config, transports)


def _portion(
    targets: Sequence[framing.SshTarget], config: SshConfig, transports: Transports
) -> list[tuple[framing.SshTarget, Host]]:
    names = [
        (
            str(target.number),
            {
                "nodevet_config": cache(partial(config.resolve, target)),
                "nodevet_transports": transports,
            },
        )
        for target in targets
    ]
    listed = Inventory((names, {}))  # type: ignore[no-untyped-call]
    for host in listed:
        host.connector_cls = NodeConnector
    State(listed, Config())  # type: ignore[no-untyped-call]
    return [(target, listed.get_host(str(target.number))) for target in targets]


def open_files() -> int:
    """Raise the limit of open files as far as allowed; returns how many are ours to use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < needed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            soft = needed
    return max(FILES_PER_HOST, soft - 64)
