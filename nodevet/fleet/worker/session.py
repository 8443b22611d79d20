"""One host's session in a worker's child: an open connection and its requests.

Every method `do_...` answers one request; its caller enforces the time limit.
"""

import math
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import gevent
from pyinfra.api.arguments import ConnectorArguments
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from nodevet.base import typed
from nodevet.base.durations import elapsed
from nodevet.base.printable import block, brief, last_line
from nodevet.base.uuids import UUID
from nodevet.fleet.protocol import answers, commands, framing
from nodevet.fleet.protocol.exchange import Answer, AnswerError, remote_request
from nodevet.fleet.protocol.payload import REMOTE, payload, probe_payload
from nodevet.fleet.ssh.connector import NodeOutput, pyinfra_host
from nodevet.fleet.ssh.errors import NoSessionError, SshConfigError, TooLateError
from nodevet.fleet.ssh.link import SshError, Stream
from nodevet.fleet.ssh.node import NoAnswerError, NodeConnection
from nodevet.fleet.worker.batch import CLOSING, Deadline, no_answer_outcome, probe_request
from nodevet.resource import ActionError, AnyAction, perform
from nodevet.resource.boot import STAYED_UP

MISSED = 3  # signs of life without an answer: well before the node releases the lock
LOCKED = 30 * 86400  # seconds that a lock is held at most
REBOOTING = 60  # seconds for `systemctl reboot` to return
Value = TypeVar("Value")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
REBOOT = StringCommand("systemctl reboot")
ACTIONS = typed.decoder(AnyAction)


class SessionError(Exception):
    """A failed request. `holder`: who holds the lock."""

    def __init__(self, status: str, why: str, holder: framing.LockHolder | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.holder = holder


class FencedError(SessionError):
    """A change that was not begun, because its lock is lost. The session is closed."""

    def __init__(self, why: str) -> None:
        super().__init__("lost", why)


class HostSession:
    """A host's connection, or why there is none."""

    def __init__(
        self, node: NodeConnection, target: framing.SshTarget, order: framing.BatchOrder
    ) -> None:
        self._node = node
        self._host: Host = pyinfra_host(node, str(target.number))
        self._target = target
        self._order = order
        self._closed = "it was not opened"  # "": the session is open
        self._lock: Stream | None = None
        self._fence: commands.Fence | None = None
        self.fenced = False  # set by the first lock: from then on changes need a lock
        self._beat: Any = None

    @property
    def stage(self) -> str:
        return self._node.stage

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
            self._node.close()

    def do_open(self, *, seconds: float) -> None:
        if not self._closed and self._node.is_active:
            return
        self.drop("the connection was lost")
        self._closed = ""  # from now on `drop` must close the connection
        try:
            self._node.connect()
        except BaseException as error:
            self.drop(f"it could not be opened: {error}")
            if isinstance(error, TooLateError):
                raise SessionError("timeout", str(error)) from error
            if isinstance(error, (NoSessionError, SshConfigError)):
                raise SessionError("unreachable", str(error)) from error
            raise

    def do_close(self, *, seconds: float) -> None:
        self.drop("it was closed")

    def do_probe(self, *, seconds: float) -> bytes:
        order, target, nonce = self._order, self._target, secrets.token_hex(8)
        program = probe_payload(order.sections, [order.asks[target.asks]])
        message = program + probe_request(order, target, nonce)
        return self._ask(nonce, message, order.probe_deadline)

    def do_remote(self, *, seconds: float, ask: str, **rest: Any) -> bytes:
        """The answer of nodevet.remote.main to `ask`: JSON, as the node wrote it."""
        nonce, limit = secrets.token_hex(8), self._order.probe_deadline
        message = remote_request(nonce=nonce, do=ask, deadline=limit, **rest)
        return _remote_result(self._ask(nonce, payload(REMOTE) + message, limit))

    def do_lock(self, *, seconds: float, who: str) -> str:
        """Take the lock, and return its path."""
        self._require_session()
        self.fenced = True
        nonce, token = secrets.token_hex(8), secrets.token_hex(16)
        limit = min(seconds, commands.LOCKING)
        message = remote_request(nonce=nonce, do="lock", deadline=limit, who=who, token=token)
        answer = Answer(nonce, self._order.max_output)

        def hold(line: str) -> tuple[bytes, Stream]:
            return self._node.hold(line, payload(REMOTE) + message, answer)

        document, stream = self._guarded(hold, answer, LOCKED)
        try:
            lock = _decoded(answers.lock, _remote_result(document))
            if not lock.held:
                holder = lock.who, lock.since, lock.running
                texts = (brief(text, answers.REASON_LIMIT) for text in holder)
                path = brief(lock.path, answers.REASON_LIMIT)
                raise SessionError("locked", path, framing.LockHolder(*texts))
            fence = commands.Fence(lock.path, lock.acting, lock.python, token)
        except BaseException:
            stream.close()
            raise
        self._lock, self._fence = stream, fence
        self._beat = gevent.spawn(self._keep_lock, stream)
        return lock.path

    def do_act(self, *, seconds: float, body: bytes) -> framing.ActResult:
        """Run the action in `body`, and return how its command ended."""
        self._require_session()
        limit = commands.inner_limit(seconds)
        try:
            action = ACTIONS.decode(body)
            parts = list(perform((action,), seconds=commands.inner_limit(limit)))
        except ActionError as error:
            return framing.ActResult(False, 2, f"nodevet refuses this action: {error}")
        ok, text, code = True, "", 0
        for command in parts:
            ok, output, late = self._execute(command, limit, self._require_lock())
            code = output.code
            text += block(output.output) + (f"\ntimed out after {elapsed(limit)}" if late else "")
            if not ok:
                break
        return framing.ActResult(ok, code, text[-commands.OUTPUT :].strip("\n"))

    def do_reboot(self, *, seconds: float, left: str) -> str:
        """Reboot, or let something else end the boot `left`; returns the new boot id, over a new
        connection."""
        end = time.monotonic() + seconds - 1
        if not left:
            self._require_session()
        before = left or self._boot_id()
        if not left:
            self._order_reboot()
        why = STAYED_UP
        while (seconds_left := end - time.monotonic()) > 1:
            self.drop("the node reboots")
            gevent.sleep(1)
            try:
                with gevent.Timeout(min(seconds_left, self._order.deadline), Deadline()):
                    self.do_open(seconds=seconds_left)
                    boot_id = self._boot_id()
            except (SessionError, Deadline) as fault:
                why = str(fault) or "timed out"
                continue
            if boot_id != before:
                return boot_id
        self.drop("the node did not come back from its reboot")
        raise SessionError("timeout", f"timed out after {elapsed(seconds)} (rebooting): {why}")

    def _order_reboot(self) -> None:
        """Raises SessionError if the node refuses."""
        try:
            ok, output, _ = self._execute(REBOOT, REBOOTING, self._require_lock())
            if not ok:
                why = brief(output.output, answers.REASON_LIMIT)
                raise SessionError("failed", f"systemctl reboot: {why}")
        except SessionError as fault:
            if fault.status != "lost" or isinstance(fault, FencedError):
                raise

    def _boot_id(self) -> str:
        ok, output, _ = self._execute(StringCommand("cat", BOOT_ID), self._order.deadline)
        boot_id = output.stdout.strip()
        if not ok or not UUID.fullmatch(boot_id):  # a shell profile may print other text
            raise SessionError("failed", f"not a valid boot id: {brief(output.output, 200)}")
        return boot_id

    def _require_lock(self) -> commands.Fence | None:
        """The lock under which a change runs, if any is needed. Raises SessionError."""
        self._require_session()
        if self.fenced and self._fence is None:
            self.drop("the lock on the node is not held")
            raise FencedError(f"nothing was done: {self._closed}")
        return self._fence

    def _execute(
        self, command: StringCommand, limit: float, fence: commands.Fence | None = None
    ) -> tuple[bool, NodeOutput, bool]:
        """Run one of pyinfra's commands on the host, under a lock if there is a `fence`.

        Returns success, output, and whether it timed out.
        """
        self._require_session()
        started, mark = time.monotonic(), secrets.token_hex(8)
        arguments: dict[str, Any] = {"_sudo": self._target.sudo, "_timeout": math.ceil(limit)}
        if fence:
            arguments["_around"] = partial(fence.around, mark=mark)
        try:
            ok, output = command.execute(
                self._host.state, self._host, cast(ConnectorArguments, arguments)
            )
        except (NoAnswerError, NoSessionError) as error:
            raise self._connection_lost(error) from error
        if output.code == commands.FENCED and output.stderr_lines[-1:] == [mark]:
            why = brief(" ".join(output.stderr_lines[-2:-1]), answers.REASON_LIMIT)
            self.drop(f"the lock on the node was lost: {why}")
            raise FencedError(f"nothing was done: {self._closed}")
        late = commands.timed_out(output.code) and time.monotonic() - started >= limit
        return ok, output, late

    def _ask(self, nonce: str, message: bytes, limit: float) -> bytes:
        self._require_session()
        answer = Answer(nonce, self._order.max_output)

        def ask(line: str) -> bytes:
            return self._node.ask(line, message, answer)

        document: bytes = self._guarded(ask, answer, limit)
        return document

    def _guarded(self, call: Callable[[str], Any], answer: Answer, limit: float) -> Any:
        """The result of `call` for the command line of our program. Raises SessionError."""
        target = self._target
        try:
            line = commands.command(python=target.python, sudo=target.sudo, seconds=limit)
            return call(line)
        except NoAnswerError as error:
            if error.code < 0:
                raise self._connection_lost(error) from error
            outcome = no_answer_outcome(error, answer, target.python, limit)
            status = "timeout" if outcome.status == "timeout" else "failed"
            raise SessionError(status, outcome.why) from error
        except (AnswerError, commands.CommandError) as error:
            raise SessionError("failed", str(error)) from error
        except NoSessionError as error:
            raise self._connection_lost(error) from error

    def _require_session(self) -> None:
        if not self._closed and not self._node.is_active:
            self.drop("the connection was lost")
        if self._closed:
            raise SessionError("lost", f"no session: {self._closed}")

    def _connection_lost(self, error: Exception) -> SessionError:
        last = last_line(error.stderr) if isinstance(error, NoAnswerError) else str(error)
        why = self._closed or "the connection was lost" + (f": {last}" if last else "")
        self.drop(why)
        return SessionError("lost", why)

    def _keep_lock(self, stream: Stream) -> None:
        """Send signs of life to the process that holds the lock; if it ends, close the session."""
        silent = 0
        try:
            while silent <= MISSED:
                with gevent.Timeout(commands.LOCK_BEAT, False):
                    if not stream.read():
                        break
                    silent = 0
                    continue
                stream.write(b"\n")
                silent += 1
        except SshError:
            pass
        if self._lock is stream:
            self.drop("the lock on the node was lost")


def _remote_result(document: bytes) -> bytes:
    """The result in a node's answer, JSON. Raises SessionError if the node reports an error."""
    return _decoded(answers.result, document)


def _decoded(decode: Callable[[bytes], Value], document: bytes) -> Value:
    """A decoded answer. Raises SessionError for a malformed one."""
    try:
        return decode(document)
    except answers.MalformedError as error:
        raise SessionError("failed", str(error)) from error
