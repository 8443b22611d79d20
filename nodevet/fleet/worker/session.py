"""One host's session in a worker's child: a connection that is kept, and what goes over it.

Every method `do_...` answers one request and is bounded by its caller, who holds a timeout.
"""

import math
import re
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import gevent
from paramiko import Channel, SSHException
from pyinfra.api.arguments import ConnectorArguments
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host

from nodevet.base import typed
from nodevet.base.durations import elapsed
from nodevet.base.printable import block, brief, last_line
from nodevet.fleet.protocol import answers, commands, framing
from nodevet.fleet.protocol.payload import (
    PROBE,
    REMOTE,
    Answer,
    AnswerError,
    payload,
    wish,
)
from nodevet.fleet.ssh.connector import NoAnswerError, NodeConnector, NodeOutput
from nodevet.fleet.ssh.errors import SshConfigError, TooLateError, UnreachableError
from nodevet.fleet.worker.batch import CLOSING, Deadline, probe_request, unanswered
from nodevet.resource import ActionError, AnyAction, perform

BEAT = 15  # seconds between two signs of life to the one who holds the lock on the node
MISSED = 3  # of them without an answer: well before the node lets the lock go
LOCKING = 60  # seconds that it may take to get the lock
LOCKED = 30 * 86400  # seconds that a lock is held at most
MARGIN = 10  # seconds that what is inside must end before what is around it
REBOOTING = 60  # seconds for `systemctl reboot` to return
OUTPUT = 1 << 14  # characters of a command's output
TOLD = 500  # characters of what a node says in a sentence
Found = TypeVar("Found")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
REBOOT = StringCommand("systemctl reboot")
ACTIONS = typed.decoder(AnyAction)


class SessionError(Exception):
    """A request that was not fulfilled. `holder`: who holds a lock."""

    def __init__(self, status: str, why: str, holder: framing.LockHolder | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.holder = holder


class FencedError(SessionError):
    """A change that was not begun: its lock is not held any more. There is no session."""

    def __init__(self, why: str) -> None:
        super().__init__("lost", why)


class HostSession:
    """A host's connection, when it is open, and why it is not."""

    def __init__(self, host: Host, target: framing.SshTarget, order: framing.BatchOrder) -> None:
        self._host = host
        self._target = target
        self._order = order
        self._connector = cast(NodeConnector, host.connector)
        self._closed = "it was not opened"  # empty: it is open
        self._lock: Channel | None = None
        self._fence: commands.Fence | None = None
        self.fenced = False  # from the first lock on nothing is changed without one
        self._beat: Any = None

    @property
    def stage(self) -> str:
        return self._connector.stage

    def drop(self, why: str) -> None:
        """Close the connection, and with it the lock."""
        if self._closed:
            return
        self._closed = why
        self._lock = self._fence = None
        beat, self._beat = self._beat, None
        if beat is not None and beat is not gevent.getcurrent():
            beat.kill(block=False)
        with gevent.Timeout(CLOSING, False):
            self._connector.disconnect()

    def do_open(self, *, seconds: float) -> None:
        if not self._closed and self._connector.transport.is_active():
            return
        self.drop("the connection was lost")
        self._closed = ""  # what it holds now is to be closed
        try:
            self._connector.connect()
        except BaseException as error:
            self.drop(f"it could not be opened: {error}")
            if isinstance(error, TooLateError):
                raise SessionError("timeout", str(error)) from error
            if isinstance(error, (ConnectError, SshConfigError)):
                raise SessionError("unreachable", str(error)) from error
            raise

    def do_close(self, *, seconds: float) -> None:
        self.drop("it was closed")

    def do_probe(self, *, seconds: float) -> bytes:
        nonce, limit = secrets.token_hex(8), self._order.probe_deadline
        told = probe_request(self._order, self._target, nonce)
        return self._ask(PROBE, nonce, told, limit)

    def do_remote(self, *, seconds: float, ask: str, **rest: Any) -> bytes:
        """What nodevet.remote.main answers to `ask`: JSON, as the node wrote it."""
        nonce, limit = secrets.token_hex(8), self._order.probe_deadline
        told = wish(nonce=nonce, do=ask, deadline=limit, **rest)
        return _result(self._ask(REMOTE, nonce, told, limit))

    def do_lock(self, *, seconds: float, who: str) -> str:
        """The lock's path, once it is held."""
        self._need()
        self.fenced = True
        nonce, token = secrets.token_hex(8), secrets.token_hex(16)
        limit = min(seconds, LOCKING)
        told = wish(nonce=nonce, do="lock", deadline=limit, who=who, token=token)
        answer = Answer(nonce, self._order.max_output)

        def hold(line: str) -> tuple[bytes, Channel]:
            return self._connector.hold(line, payload(REMOTE) + told, answer)

        document, channel = self._guarded(hold, answer, LOCKED)
        try:
            found = _usable(answers.lock, _result(document))
            if not found.held:
                texts = (brief(each, TOLD) for each in (found.who, found.since, found.running))
                raise SessionError("locked", brief(found.path, TOLD), framing.LockHolder(*texts))
            fence = commands.Fence(found.path, found.acting, found.python, token)
        except BaseException:
            channel.close()
            raise
        self._lock, self._fence = channel, fence
        self._beat = gevent.spawn(self._keep, channel)
        return found.path

    def do_act(self, *, seconds: float, body: bytes) -> framing.ActResult:
        """However the command ends. `body`: the action."""
        self._need()
        limit = max(seconds / 2, seconds - MARGIN)
        try:
            within = max(limit / 2, limit - MARGIN)
            commands = list(perform((ACTIONS.decode(body),), seconds=within))
        except ActionError as error:
            return framing.ActResult(False, 2, f"nodevet refuses this action: {error}")
        ok, said, code = True, "", 0
        for each in commands:
            ok, output, late = self._execute(each, limit, self._around())
            code = output.code
            said += block(output.output) + (f"\ntimed out after {elapsed(limit)}" if late else "")
            if not ok:
                break
        return framing.ActResult(ok, code, said[-OUTPUT:].strip("\n"))

    def do_reboot(self, *, seconds: float) -> str:
        """The new boot id, in a new connection."""
        end = time.monotonic() + seconds - 1
        self._need()
        before = self._boot_id()
        try:
            ok, output, _ = self._execute(REBOOT, REBOOTING, self._around())
            if not ok:
                raise SessionError("failed", f"systemctl reboot: {brief(output.output, TOLD)}")
        except SessionError as fault:
            if fault.status != "lost" or isinstance(fault, FencedError):
                raise
        why = "it did not go down"
        while (left := end - time.monotonic()) > 1:
            self.drop("the node reboots")
            gevent.sleep(1)
            try:
                with gevent.Timeout(min(left, self._order.deadline), Deadline()):
                    self.do_open(seconds=left)
                    booted = self._boot_id()
            except (SessionError, Deadline) as fault:
                why = str(fault) or "timed out"
                continue
            if booted != before:
                return booted
        self.drop("the node did not come back from its reboot")
        raise SessionError("timeout", f"timed out after {elapsed(seconds)} (rebooting): {why}")

    def _boot_id(self) -> str:
        ok, output, _ = self._execute(StringCommand("cat", BOOT_ID), self._order.deadline)
        booted = output.stdout.strip()
        if not ok or not UUID.fullmatch(booted):  # what a profile prints is not a boot id
            raise SessionError("failed", f"not a valid boot id: {brief(output.output, 200)}")
        return booted

    def _around(self) -> commands.Fence | None:
        """The lock that a change runs under. Raises SessionError."""
        self._need()
        if self.fenced and self._fence is None:
            self.drop("the lock on the node is not held")
            raise FencedError(f"nothing was done: {self._closed}")
        return self._fence

    def _execute(
        self, each: StringCommand, limit: float, fence: commands.Fence | None = None
    ) -> tuple[bool, NodeOutput, bool]:
        """Run one of pyinfra's commands on the host: success, output, whether it was ended.

        Under a lock if a fence is given.
        """
        self._need()
        started, mark = time.monotonic(), secrets.token_hex(8)
        arguments: dict[str, Any] = {"_sudo": self._target.sudo, "_timeout": math.ceil(limit)}
        if fence:
            arguments["_around"] = partial(fence.around, mark=mark)
        try:
            ok, output = each.execute(
                self._host.state, self._host, cast(ConnectorArguments, arguments)
            )
        except (NoAnswerError, UnreachableError, SSHException, OSError, EOFError) as error:
            raise self._lost(error) from error
        if output.code == commands.FENCED and output.stderr_lines[-1:] == [mark]:
            why = brief(" ".join(output.stderr_lines[-2:-1]), TOLD)
            self.drop(f"the lock on the node was lost: {why}")
            raise FencedError(f"nothing was done: {self._closed}")
        late = commands.timed_out(output.code) and time.monotonic() - started >= limit
        return ok, output, late

    def _ask(self, program: str, nonce: str, told: bytes, limit: float) -> bytes:
        self._need()
        answer = Answer(nonce, self._order.max_output)

        def ask(line: str) -> bytes:
            return self._connector.ask(line, payload(program) + told, answer)

        document: bytes = self._guarded(ask, answer, limit)
        return document

    def _guarded(self, call: Callable[[str], Any], answer: Answer, limit: float) -> Any:
        """The call with the command line for a program of ours. Raises SessionError."""
        target = self._target
        try:
            line = commands.command(python=target.python, sudo=target.sudo, seconds=limit)
            return call(line)
        except NoAnswerError as error:
            if error.code < 0:
                raise self._lost(error) from error
            outcome = unanswered(error, answer, target.python, limit)
            status = "timeout" if outcome.status == "timeout" else "failed"
            raise SessionError(status, outcome.why) from error
        except (AnswerError, commands.CommandError) as error:
            raise SessionError("failed", str(error)) from error
        except (ConnectError, SSHException, OSError, EOFError) as error:
            raise self._lost(error) from error

    def _need(self) -> None:
        if not self._closed and not self._connector.transport.is_active():
            self.drop("the connection was lost")
        if self._closed:
            raise SessionError("lost", f"no session: {self._closed}")

    def _lost(self, error: Exception) -> SessionError:
        last = last_line(error.stderr) if isinstance(error, NoAnswerError) else str(error)
        why = self._closed or "the connection was lost" + (f": {last}" if last else "")
        self.drop(why)
        return SessionError("lost", why)

    def _keep(self, channel: Channel) -> None:
        """Give signs of life to the one who holds the lock; without the lock nothing goes on."""
        channel.settimeout(BEAT)
        silent = 0
        try:
            while silent <= MISSED:
                try:
                    if not channel.recv(1024):
                        break
                    silent = 0
                except TimeoutError:
                    channel.sendall(b"\n")
                    silent += 1
        except (SSHException, OSError, EOFError):
            pass
        if self._lock is channel:
            self.drop("the lock on the node was lost")


def _result(document: bytes) -> bytes:
    """What was found on the node, JSON. Raises SessionError if the node says why nothing was."""
    return _usable(answers.result, document)


def _usable(decode: Callable[[bytes], Found], document: bytes) -> Found:
    """Raises SessionError for a malformed answer."""
    try:
        return decode(document)
    except answers.MalformedError as error:
        raise SessionError("failed", str(error)) from error
