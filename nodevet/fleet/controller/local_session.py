"""A session on this machine: the same requests and the same lock as elsewhere, without SSH."""

import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from nodevet.base import last_verdict, typed
from nodevet.base.durations import elapsed
from nodevet.base.printable import block, brief, last_line
from nodevet.fleet.controller.child import ChildProcess, StalledError
from nodevet.fleet.controller.local import ENVIRONMENT, start
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.fleet.model import Options
from nodevet.fleet.protocol import answers, commands
from nodevet.fleet.protocol.exchange import Answer, AnswerError, remote_request, request
from nodevet.fleet.protocol.framing import ActResult, SessionAnswer
from nodevet.model import Host
from nodevet.resource import ActionError, AnyAction, perform

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

ACTIONS = typed.decoder(AnyAction)
Value = TypeVar("Value")


class LocalSession:
    """Answers the requests of `SshExecutor` on this machine. Raises WorkError and LockedError."""

    def __init__(self, host: Host, options: Options) -> None:
        self._host = host
        self._options = options
        self._fenced = False  # set by the first lock: from then on changes need a lock
        self._fence: commands.Fence | None = None
        self._keeper: ChildProcess | None = None
        self._closed = threading.Event()

    def ask(self, do: str, seconds: float, body: bytes, **arguments: Any) -> SessionAnswer:
        """The answer to one request; see nodevet.fleet.worker.session."""
        if self._host.root != "/":
            raise WorkError("unreachable", f"{self._host.root} is not a machine that can be fixed")
        if do in ("lock", "act") and os.geteuid() != 0:
            raise WorkError("failed", "only root can change this machine: run it with sudo")
        if do == "open":
            return SessionAnswer()
        if do == "close":
            self.close()
            return SessionAnswer()
        if do == "probe":
            return SessionAnswer(body=self._probe())
        if do == "remote":
            return SessionAnswer(body=self._remote(**arguments))
        if do == "lock":
            return SessionAnswer(result=self._lock(seconds, **arguments))
        if do == "act":
            return SessionAnswer(result=self._act(seconds, body))
        raise WorkError("failed", f"{do}: not on the machine that nodevet runs on")

    def close(self) -> None:
        """Release the lock. May be called again."""
        self._closed.set()
        self._fence = None
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.hang_up()
            keeper.end()

    def _probe(self) -> bytes:
        nonce, limit = secrets.token_hex(8), self._options.probe_seconds
        message = request(
            nonce=nonce,
            root=self._host.root,
            whole_machine=self._host.whole_machine,
            deadline=limit,
            asked_s=None,
            asks=self._options.asks_for(self._host),
        )
        return self._run_request(message, nonce, limit)

    def _remote(self, *, ask: str, **rest: Any) -> bytes:
        nonce, limit = secrets.token_hex(8), self._options.probe_seconds
        message = remote_request(nonce=nonce, do=ask, deadline=limit, **rest)
        document = self._run_request(message, nonce, limit)
        return decoded(lambda: answers.result(document))

    def _lock(self, seconds: float, *, who: str) -> str:
        """Take the lock, and return its path."""
        self.close()
        self._fenced = True
        nonce, token = secrets.token_hex(8), secrets.token_hex(16)
        limit = min(seconds, commands.LOCKING)
        message = remote_request(nonce=nonce, do="lock", deadline=limit, who=who, token=token)
        keeper = start(sudo=False)
        try:
            keeper.write(message, limit)
            document = self._read_document(keeper, nonce, limit)
            answer = decoded(lambda: answers.lock(answers.result(document)))
            if not answer.held:
                holder = answer.who, answer.since, answer.running
                raise LockedError(*(brief(text, answers.REASON_LIMIT) for text in holder))
        except BaseException as error:
            keeper.kill()
            keeper.end()
            if isinstance(error, (StalledError, OSError)):
                raise WorkError("failed", "cannot ask for the lock") from error
            raise
        self._keeper = keeper
        self._fence = commands.Fence(answer.path, answer.acting, answer.python, token)
        self._closed = threading.Event()
        beat = threading.Thread(target=self._beat, args=(keeper, self._closed), daemon=True)
        beat.start()
        return answer.path

    def _beat(self, keeper: ChildProcess, over: threading.Event) -> None:
        """Send signs of life to the process that holds our lock."""
        while not over.wait(commands.LOCK_BEAT):
            with suppress(OSError, StalledError, ValueError):
                keeper.write(b"\n", 1)

    def _act(self, seconds: float, body: bytes) -> ActResult:
        """Run the action in `body`, and return how its command ended."""
        if self._fenced and self._fence is None:
            raise WorkError("lost", "nothing was done: the lock on this machine is not held")
        last_verdict.forget()
        limit = commands.inner_limit(seconds)
        try:
            action = ACTIONS.decode(body)
            actions = perform((action,), seconds=commands.inner_limit(limit))
            scripts = [(action.get_raw_value(), _stdin(action)) for action in actions]
        except ActionError as error:
            return ActResult(False, 2, f"nodevet refuses this action: {error}")
        code, text = 0, ""
        for script, stdin in scripts:
            code, output = self._run(script, stdin, limit)
            text += block(output)
            if code != 0:
                break
        return ActResult(code == 0, code, text[-commands.OUTPUT :].strip("\n"))

    def _run(self, script: str, stdin: bytes, limit: float) -> tuple[int, str]:
        """Run a script of sh under the lock to its end: exit code and output."""
        mark, started = secrets.token_hex(8), time.monotonic()
        line = commands.with_timeout(script, limit)
        if self._fence:
            line = self._fence.around(line, mark=mark)
        try:
            process = subprocess.run(
                ["/bin/sh", "-c", line],
                check=False,
                input=stdin,
                capture_output=True,
                env=dict(ENVIRONMENT),
                cwd="/",
                start_new_session=True,  # Ctrl-C is for this process
                timeout=limit + 3 * commands.GRACE,
            )
        except subprocess.TimeoutExpired as error:
            raise WorkError("timeout", f"timed out after {elapsed(limit)}") from error
        except OSError as error:
            raise WorkError("failed", f"/bin/sh: {error.strerror}") from error
        complaint = process.stderr.decode("utf-8", "backslashreplace")
        if process.returncode == commands.FENCED and complaint.rstrip("\n").endswith(mark):
            why = brief(" ".join(complaint.splitlines()[-2:-1]), answers.REASON_LIMIT)
            self.close()
            raise WorkError("lost", f"nothing was done: the lock on this machine was lost: {why}")
        output = process.stdout.decode("utf-8", "backslashreplace") + complaint
        if commands.timed_out(process.returncode) and time.monotonic() - started >= limit:
            output += f"\ntimed out after {elapsed(limit)}"
        return process.returncode, output[-commands.OUTPUT :]

    def _run_request(self, message: bytes, nonce: str, limit: float) -> bytes:
        """The answer of a new process to one request."""
        child = start(sudo=self._host.sudo or self._options.sudo, stdin=message)
        try:
            return self._read_document(child, nonce, limit)
        finally:
            child.kill()
            child.end()

    def _read_document(self, child: ChildProcess, nonce: str, limit: float) -> bytes:
        """The document that a child writes within `limit` seconds."""
        answer, end = Answer(nonce, self._options.max_output), time.monotonic() + limit
        timer = threading.Timer(limit + commands.GRACE, child.kill)
        timer.start()
        try:
            while chunk := child.read():
                document = answer.take(chunk)
                if document is not None:
                    return document
        except AnswerError as error:
            raise WorkError("failed", str(error)) from error
        finally:
            timer.cancel()
        if time.monotonic() >= end:
            raise WorkError("timeout", f"timed out after {elapsed(limit)}")
        raise WorkError("failed", f"{answer.missing()}; {last_line(str(child.end()).encode())}")


def _stdin(command: "StringCommand") -> bytes:
    """The standard input of a command."""
    text = str(command.connector_arguments.get("_stdin") or "")
    return (text if not text or text.endswith("\n") else f"{text}\n").encode()


def decoded(decode: Callable[[], Value]) -> Value:
    """A decoded answer. Raises WorkError for a malformed one."""
    try:
        return decode()
    except answers.MalformedError as error:
        raise WorkError("failed", str(error)) from error
