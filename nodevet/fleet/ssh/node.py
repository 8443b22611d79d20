"""One node over SSH: its commands, bounded. Shard process only."""

from collections.abc import Callable
from dataclasses import dataclass

from nodevet.fleet.protocol.exchange import Answer
from nodevet.fleet.ssh.errors import PassingError
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.link import Link, SshError, Stream
from nodevet.fleet.ssh.transport import Connection, Transports

STDERR_KEPT = 1 << 16  # bytes; the rest is read and dropped
OUTPUT_KEPT = 1 << 16  # bytes


class NoAnswerError(Exception):
    """The node's command or the connection ended without evidence."""

    def __init__(self, code: int, stderr: bytes) -> None:
        super().__init__(code)
        self.code = code  # -1: the connection was lost
        self.stderr = stderr


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: its code, and the last bytes of both streams."""

    code: int
    stdout: bytes
    stderr: bytes


class NodeConnection:
    """A connection to one node. `stage`: what it waits for. Every command has a channel of its own,
    and ends on the node if the channel closes."""

    stage = "waiting"

    def __init__(
        self,
        resolve: Callable[[], HostConfig],
        transports: Transports,
        output_kept: int = OUTPUT_KEPT,
    ) -> None:
        """`resolve`: reads ssh_config for this node; it raises SshConfigError. `output_kept`: the
        last bytes of each stream that `execute` keeps."""
        self._resolve = resolve
        self._output_kept = output_kept
        self._transports = transports
        self.connection = Connection()

    def connect(self) -> None:
        """Raises SshConfigError, UnreachableError and TooLateError."""
        self.stage = "reading ssh_config"
        config = self._resolve()
        self.stage = "connecting"
        self.connection = Connection()
        self._transports.open(config, self.connection)

    @property
    def is_active(self) -> bool:
        return self.connection.link is not None and self.connection.link.is_active

    def close(self) -> None:
        self.connection.close()

    def ask(self, command: str, stdin: bytes, answer: Answer) -> bytes:
        """Run a command that reads `stdin`, until the evidence in its output is complete.

        Raises NoAnswerError if it ends before that, AnswerError if the output is malformed.
        """
        stream = self._run(command)
        try:
            return self._converse(stream, stdin, answer, end=True)
        finally:
            stream.close()

    def hold(self, command: str, stdin: bytes, answer: Answer) -> tuple[bytes, Stream]:
        """Like `ask`, but the command keeps running while its stream is open."""
        stream = self._run(command)
        try:
            return self._converse(stream, stdin, answer, end=False), stream
        except BaseException:
            stream.close()
            raise

    def execute(self, command: str, stdin: bytes) -> CommandResult:
        """Run a command to its end. Raises PassingError and NoAnswerError."""
        stream = self._run(command)
        self.stage = "running a command"
        output, complaint = bytearray(), bytearray()
        try:
            for is_error, chunk in stream.converse(stdin):
                buffer = complaint if is_error else output
                buffer += chunk
                del buffer[: -self._output_kept]
            code = stream.exit_code()
        except SshError as error:
            raise NoAnswerError(-1, bytes(complaint)) from error
        finally:
            stream.close()
        if code < 0:
            raise NoAnswerError(code, bytes(complaint))
        return CommandResult(code, bytes(output), bytes(complaint))

    def _run(self, command: str) -> Stream:
        self.stage = "opening a session"
        try:
            link = self._link()
            stream = link.open()
        except SshError as error:
            raise PassingError(f"no session: {error}") from error
        self.stage = "starting the probe"
        try:
            stream.begin(command)
        except SshError as error:
            stream.close()
            raise NoAnswerError(-1, b"") from error
        return stream

    def _link(self) -> Link:
        if self.connection.link is None:
            raise SshError("connection lost")
        return self.connection.link

    def _converse(self, stream: Stream, stdin: bytes, answer: Answer, *, end: bool) -> bytes:
        self.stage = "running the probe"
        complaint = bytearray()
        try:
            for is_error, chunk in stream.converse(stdin, end=end):
                if is_error:
                    complaint += chunk[: max(0, STDERR_KEPT - len(complaint))]
                elif (document := answer.take(chunk)) is not None:
                    return document
            raise NoAnswerError(stream.exit_code(), bytes(complaint))
        except SshError as error:
            raise NoAnswerError(-1, bytes(complaint)) from error
