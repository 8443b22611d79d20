"""This machine, for as long as work is done there: the same requests and the same lock, no SSH."""

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
from nodevet.fleet.protocol.framing import ActResult, SessionAnswer
from nodevet.fleet.protocol.payload import Answer, AnswerError, request, wish
from nodevet.model import Host
from nodevet.resource import ActionError, AnyAction, perform

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

BEAT = 15  # seconds between two signs of life to the one who holds the lock
LOCKING = 60  # seconds that it may take to get the lock
MARGIN = 10  # seconds that what is inside must end before what is around it
OUTPUT = 1 << 14  # characters of a command's output
TOLD = 500  # characters of what is said in a sentence
ACTIONS = typed.decoder(AnyAction)
Found = TypeVar("Found")


class LocalSession:
    """What `SshExecutor` asks of this machine. Raises WorkError and LockedError."""

    def __init__(self, host: Host, options: Options) -> None:
        self._host = host
        self._options = options
        self._fenced = False  # from the first lock on nothing is changed without one
        self._fence: commands.Fence | None = None
        self._keeper: ChildProcess | None = None
        self._over = threading.Event()

    def ask(self, do: str, seconds: float, body: bytes, **arguments: Any) -> SessionAnswer:
        """What comes of one request; see nodevet.fleet.worker.session."""
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
        """Give the lock back. May be called again."""
        self._over.set()
        self._fence = None
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.hang_up()
            keeper.end()

    def _probe(self) -> bytes:
        nonce, limit = secrets.token_hex(8), self._options.probe_seconds
        told = request(
            nonce=nonce,
            root=self._host.root,
            whole_machine=self._host.whole_machine,
            deadline=limit,
            asked_s=None,
            asks=self._options.asked(self._host),
        )
        return self._answered(told, nonce, limit)

    def _remote(self, *, ask: str, **rest: Any) -> bytes:
        nonce, limit = secrets.token_hex(8), self._options.probe_seconds
        told = wish(nonce=nonce, do=ask, deadline=limit, **rest)
        document = self._answered(told, nonce, limit)
        return _usable(lambda: answers.result(document))

    def _lock(self, seconds: float, *, who: str) -> str:
        """The lock's path, once it is held."""
        self.close()
        self._fenced = True
        nonce, token = secrets.token_hex(8), secrets.token_hex(16)
        limit = min(seconds, LOCKING)
        told = wish(nonce=nonce, do="lock", deadline=limit, who=who, token=token)
        keeper = start(sudo=False)
        try:
            keeper.write(told, limit)
            document = self._heard(keeper, nonce, limit)
            found = _usable(lambda: answers.lock(answers.result(document)))
            if not found.held:
                told_of = (brief(each, TOLD) for each in (found.who, found.since, found.running))
                raise LockedError(*told_of)
        except BaseException as error:
            keeper.kill()
            keeper.end()
            if isinstance(error, (StalledError, OSError)):
                raise WorkError("failed", "the lock could not be asked for") from error
            raise
        self._keeper = keeper
        self._fence = commands.Fence(found.path, found.acting, found.python, token)
        self._over = threading.Event()
        beat = threading.Thread(target=self._beat, args=(keeper, self._over), daemon=True)
        beat.start()
        return found.path

    def _beat(self, keeper: ChildProcess, over: threading.Event) -> None:
        """Signs of life to whoever holds the lock for us."""
        while not over.wait(BEAT):
            with suppress(OSError, StalledError, ValueError):
                keeper.write(b"\n", 1)

    def _act(self, seconds: float, body: bytes) -> ActResult:
        """However the command ends. `body`: the action."""
        if self._fenced and self._fence is None:
            raise WorkError("lost", "nothing was done: the lock on this machine is not held")
        last_verdict.forget()
        limit = max(seconds / 2, seconds - MARGIN)
        try:
            within = max(limit / 2, limit - MARGIN)
            actions = perform((ACTIONS.decode(body),), seconds=within)
            scripts = [(each.get_raw_value(), _stdin(each)) for each in actions]
        except ActionError as error:
            return ActResult(False, 2, f"nodevet refuses this action: {error}")
        code, said = 0, ""
        for script, stdin in scripts:
            code, output = self._run(script, stdin, limit)
            said += block(output)
            if code != 0:
                break
        return ActResult(code == 0, code, said[-OUTPUT:].strip("\n"))

    def _run(self, script: str, stdin: bytes, limit: float) -> tuple[int, str]:
        """A script of sh under the lock, to its end: exit code, and what it said."""
        mark, started = secrets.token_hex(8), time.monotonic()
        whole = commands.bounded(script, limit)
        if self._fence:
            whole = self._fence.around(whole, mark=mark)
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", whole],
                check=False,
                input=stdin,
                capture_output=True,
                env=dict(ENVIRONMENT),
                cwd="/",
                start_new_session=True,  # a Ctrl-C is ours to take
                timeout=limit + 3 * commands.GRACE,
            )
        except subprocess.TimeoutExpired as error:
            raise WorkError("timeout", f"timed out after {elapsed(limit)}") from error
        except OSError as error:
            raise WorkError("failed", f"/bin/sh: {error.strerror}") from error
        complaint = done.stderr.decode("utf-8", "backslashreplace")
        if done.returncode == commands.FENCED and complaint.rstrip("\n").endswith(mark):
            why = brief(" ".join(complaint.splitlines()[-2:-1]), TOLD)
            self.close()
            raise WorkError("lost", f"nothing was done: the lock on this machine was lost: {why}")
        said = done.stdout.decode("utf-8", "backslashreplace") + complaint
        if commands.timed_out(done.returncode) and time.monotonic() - started >= limit:
            said += f"\ntimed out after {elapsed(limit)}"
        return done.returncode, said[-OUTPUT:]

    def _answered(self, told: bytes, nonce: str, limit: float) -> bytes:
        """The answer to a request that ends with it."""
        child = start(sudo=self._host.sudo or self._options.sudo, stdin=told)
        try:
            return self._heard(child, nonce, limit)
        finally:
            child.kill()
            child.end()

    def _heard(self, child: ChildProcess, nonce: str, limit: float) -> bytes:
        """The document that a child writes within its time."""
        answer, end = Answer(nonce, self._options.max_output), time.monotonic() + limit
        late = threading.Timer(limit + commands.GRACE, child.kill)
        late.start()
        try:
            while chunk := child.read():
                document = answer.take(chunk)
                if document is not None:
                    return document
        except AnswerError as error:
            raise WorkError("failed", str(error)) from error
        finally:
            late.cancel()
        if time.monotonic() >= end:
            raise WorkError("timeout", f"timed out after {elapsed(limit)}")
        raise WorkError("failed", f"{answer.missing()}; {last_line(str(child.end()).encode())}")


def _stdin(command: "StringCommand") -> bytes:
    """What a command reads, which is text."""
    text = str(command.connector_arguments.get("_stdin") or "")
    return (text if not text or text.endswith("\n") else f"{text}\n").encode()


def _usable(decode: Callable[[], Found]) -> Found:
    """Raises WorkError for a malformed answer."""
    try:
        return decode()
    except answers.MalformedError as error:
        raise WorkError("failed", str(error)) from error
