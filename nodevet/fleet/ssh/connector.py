"""pyinfra's SSH connector, bounded. Shard process only.

It differs from pyinfra's: it checks host keys against known_hosts as ssh does, also those of jump
hosts, which hosts share; output is bytes and limited; it keeps the exit code; and closing it closes
the session on the node.
"""

from dataclasses import dataclass
from typing import Any

import gevent
from paramiko import Channel, SSHException
from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.api.util import get_file_io
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient.client import SSHClient
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command

from nodevet.fleet.protocol.commands import GRACE, with_timeout
from nodevet.fleet.protocol.payload import Answer
from nodevet.fleet.ssh.errors import PassingError
from nodevet.fleet.ssh.transport import Connection

CHUNK = 1 << 16
STDERR_KEPT = 1 << 16  # bytes; the rest is read and dropped
DATA = ("nodevet_config", "nodevet_transports")  # of a host
OUTPUT_KEPT = 1 << 16  # last bytes of each stream of a command


class NoAnswerError(Exception):
    """The node's command or the connection ended without evidence."""

    def __init__(self, code: int, stderr: bytes) -> None:
        super().__init__(code)
        self.code = code  # -1: the connection was lost
        self.stderr = stderr


@dataclass
class NodeOutput(CommandOutput):
    """A command's output as pyinfra represents it, and its exit code."""

    code: int = 0


class NodeConnector(SSHConnector):
    """A connection to one node. `stage`: what it waits for."""

    data: Any  # a function that returns the HostConfig, and the Transports
    stage = "waiting"

    def __init__(self, state: State, host: Host) -> None:
        """Skips pyinfra's own, which inspects the types of its settings for every host."""
        self.state = state
        self.host = host
        self.data = {name: host.data.get(name) for name in DATA}
        self.connection = Connection()

    def connect(self) -> None:
        """Raises SshConfigError, UnreachableError and TooLateError; the last two, ConnectError."""
        self.stage = "reading ssh_config"
        config = self.data["nodevet_config"]()
        self.stage = "connecting"
        self.connection = Connection()
        client = SSHClient()
        self.transport = self.data["nodevet_transports"].open(config, self.connection)
        client._transport = self.transport  # type: ignore[attr-defined]
        self.client = client

    def ask(self, command: str, stdin: bytes, answer: Answer) -> bytes:
        """Run a command that reads `stdin`, until the evidence in its output is complete.

        Raises NoAnswerError if it ends before that, AnswerError if the output is malformed.
        """
        channel = self._session()
        try:
            return self._converse(channel, command, stdin, answer)
        finally:
            channel.close()

    def hold(self, command: str, stdin: bytes, answer: Answer) -> tuple[bytes, Channel]:
        """As `ask`, but the command keeps running while its channel is open."""
        channel = self._session()
        try:
            return self._converse(channel, command, stdin, answer, end=False), channel
        except BaseException:
            channel.close()
            raise

    def run_shell_command(
        self,
        command: StringCommand,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> tuple[bool, NodeOutput]:
        """As pyinfra's; `_timeout` ends the command on the node too, with code 124 or 137.

        `_around` wraps the whole script, also with sudo. Never asks for a password. Raises
        UnreachableError, and NoAnswerError if the connection is lost or silent long after
        `_timeout`.
        """
        seconds, around = arguments.pop("_timeout", None), arguments.pop("_around", None)
        stdin = _as_bytes(arguments.pop("_stdin", None))
        codes = arguments.pop("_success_exit_codes", None) or [0]
        arguments.pop("_get_pty", None)
        if seconds:
            command = StringCommand(with_timeout(command.get_raw_value(), seconds))
        if around:
            command = StringCommand(around(command.get_raw_value()))
        line = make_unix_command(command, **arguments).get_raw_value()
        with gevent.Timeout(seconds and seconds + 3 * GRACE, NoAnswerError(-1, b"no answer")):
            output = self._execute(line, stdin)
        return output.code in codes, output

    def put_file(
        self,
        filename_or_io: Any,
        remote_filename: str,
        remote_temp_filename: Any = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        """As pyinfra's, but through the stdin of a command: no SFTP, and no copy for sudo."""
        with get_file_io(filename_or_io) as file:
            content = file.read()
        place = QuoteString(remote_filename)
        size = f'[ "$(wc -c <"$f")" -eq {len(content)} ]'
        command = StringCommand(
            StringCommand("f=", place, ";", _separator=""), f'cat >"$f" && {size}'
        )
        return self.run_shell_command(command, **{**arguments, "_stdin": content})[0]

    def _session(self) -> Channel:
        self.stage = "opening a session"
        try:
            channel: Channel = self.transport.open_session()
        except (SSHException, OSError, EOFError) as error:
            raise PassingError(f"no session: {error or 'connection lost'}") from error
        return channel

    def _converse(
        self, channel: Channel, command: str, stdin: bytes, answer: Answer, *, end: bool = True
    ) -> bytes:
        complaint = bytearray()
        self.stage = "starting the probe"
        try:
            channel.exec_command(command)
            self.stage = "running the probe"
            listener = gevent.spawn(_listen, channel, complaint)
            try:
                _send(channel, stdin, end=end)
                while chunk := channel.recv(CHUNK):
                    document = answer.take(chunk)
                    if document is not None:
                        return document
                listener.join()
            finally:
                listener.kill()
            raise NoAnswerError(channel.recv_exit_status(), bytes(complaint))
        except (SSHException, EOFError, OSError) as error:
            raise NoAnswerError(-1, bytes(complaint)) from error

    def _execute(self, line: str, stdin: bytes) -> NodeOutput:
        """Run a command to its end; returns the last bytes of both streams."""
        channel = self._session()
        self.stage = "running a command"
        output, complaint = bytearray(), bytearray()
        helpers = []
        try:
            channel.exec_command(line)
            helpers = [
                gevent.spawn(_send, channel, stdin),
                gevent.spawn(_keep_end, channel.recv_stderr, complaint),
            ]
            _keep_end(channel.recv, output)
            helpers[1].join()
            code = channel.recv_exit_status()
        except (SSHException, EOFError, OSError) as error:
            raise NoAnswerError(-1, bytes(complaint)) from error
        finally:
            gevent.killall(helpers)
            channel.close()
        if code < 0:
            raise NoAnswerError(code, bytes(complaint))
        lines = [OutputLine("stdout", text) for text in _lines(output)]
        lines += [OutputLine("stderr", text) for text in _lines(complaint)]
        return NodeOutput(lines, code)

    def disconnect(self) -> None:
        self.connection.close()
        self.client = None


def _as_bytes(stdin: Any) -> bytes:
    """The bytes of pyinfra's `_stdin`: text, lines, an open file or bytes."""
    if stdin is None or isinstance(stdin, bytes):
        return stdin or b""
    if hasattr(stdin, "readlines"):
        stdin = stdin.readlines()
    lines = stdin if isinstance(stdin, (list, tuple)) else [stdin]
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode()


def _send(channel: Channel, stdin: bytes, *, end: bool = True) -> None:
    """Send all of stdin. If a command ends without reading it, its exit code tells why."""
    try:
        channel.sendall(stdin)
        if end:
            channel.shutdown_write()
    except OSError:
        return


def _keep_end(receive: Any, buffer: bytearray) -> None:
    """Read a stream to its end into `buffer`, which keeps the last bytes."""
    while chunk := receive(CHUNK):
        buffer += chunk
        del buffer[:-OUTPUT_KEPT]


def _lines(buffer: bytearray) -> list[str]:
    text = buffer.decode("utf-8", "backslashreplace")
    return text.removesuffix("\n").split("\n") if text else []


def _listen(channel: Channel, complaint: bytearray) -> None:
    """Keep the first bytes of stderr, and read the rest so that the command does not block."""
    while chunk := channel.recv_stderr(CHUNK):
        complaint += chunk[: max(0, STDERR_KEPT - len(complaint))]
