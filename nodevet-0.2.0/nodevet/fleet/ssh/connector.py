"""pyinfra's connector over libssh: `@nodevet/HOST`, and the actions of a fix. Shard process only.

It differs from pyinfra's `@ssh`: it reads ssh_config and known_hosts as ssh does, also for jump
hosts, which hosts share; output is bytes and limited; it keeps the exit code; and closing it closes
the session on the node.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import gevent
from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.config import Config
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.api.util import get_file_io
from pyinfra.connectors.base import BaseConnector, ConnectorData, DataMeta
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command

from nodevet.fleet.model import Options
from nodevet.fleet.protocol.commands import GRACE, with_timeout
from nodevet.fleet.protocol.framing import SshTarget
from nodevet.fleet.ssh.errors import NoSessionError, SshConfigError
from nodevet.fleet.ssh.host_config import SshConfig
from nodevet.fleet.ssh.node import CommandResult, NoAnswerError, NodeConnection
from nodevet.fleet.ssh.transport import Transports

NODE = "nodevet_node"  # data of a host: a function that returns the NodeConnection made for it
SHARED = "nodevet_transports"  # of a State


class NodeConnectorData(ConnectorData):
    """The same as for `@ssh`."""

    ssh_hostname: str
    ssh_port: int
    ssh_user: str
    ssh_key: str
    ssh_known_hosts_file: str
    ssh_config_file: str


DESCRIPTIONS = {
    "ssh_hostname": "name or address to connect to",
    "ssh_port": "port",
    "ssh_user": "user",
    "ssh_key": "private key",
    "ssh_known_hosts_file": "known_hosts file, before the others of ssh_config",
    "ssh_config_file": "ssh_config file, in place of the user's and the system's",
}


@dataclass
class NodeOutput(CommandOutput):
    """A command's output as pyinfra represents it, and its exit code."""

    code: int = 0


class NodeConnector(BaseConnector):
    """A connection to one node."""

    handles_execution = True
    data_cls = NodeConnectorData
    data_meta = {  # noqa: RUF012
        key: DataMeta(text) for key, text in DESCRIPTIONS.items()
    }

    def __init__(self, state: State, host: Host) -> None:
        super().__init__(state, host)
        known = host.data.get(NODE)
        self.node: NodeConnection = known() if known else _node(state, host.name, self.data)

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        yield f"@nodevet/{name}", {"ssh_hostname": name}, []

    def connect(self) -> None:
        """Raises ConnectError."""
        try:
            self.node.connect()
        except (NoSessionError, SshConfigError) as error:
            self.node.close()
            raise ConnectError(str(error)) from error

    def disconnect(self) -> None:
        self.node.close()

    def run_shell_command(
        self,
        command: StringCommand,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> tuple[bool, NodeOutput]:
        """Like pyinfra's; `_timeout` also ends the command on the node, with code 124 or 137.

        `_around` wraps the whole script, also with sudo. Never asks for a password. Raises
        PassingError, and NoAnswerError if the connection is lost or silent long after `_timeout`.
        """
        codes = arguments.get("_success_exit_codes") or [0]
        output = self._output(command, arguments)
        for line in output.combined_lines if print_output else ():
            click.echo(f"{self.host.print_prefix}{line.line}", err=line.buffer_name == "stderr")
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
        """Like pyinfra's, but through the stdin of a command: no SFTP, and no copy for sudo."""
        with get_file_io(filename_or_io) as file:
            content = file.read()
        place = QuoteString(remote_filename)
        size = f'[ "$(wc -c <"$f")" -eq {len(content)} ]'
        command = StringCommand(
            StringCommand("f=", place, ";", _separator=""), f'cat >"$f" && {size}'
        )
        return self.run_shell_command(command, **{**arguments, "_stdin": content})[0]

    def get_file(
        self,
        remote_filename: str,
        filename_or_io: Any,
        remote_temp_filename: Any = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        """Like pyinfra's, but through the stdout of a command."""
        result = self._result(StringCommand("cat", QuoteString(remote_filename)), arguments)
        with get_file_io(filename_or_io, "wb") as file:
            file.write(result.stdout)
        return result.code == 0

    def _output(self, command: StringCommand, arguments: dict[str, Any]) -> NodeOutput:
        result = self._result(command, arguments)
        lines = [OutputLine("stdout", text) for text in _lines(result.stdout)]
        lines += [OutputLine("stderr", text) for text in _lines(result.stderr)]
        return NodeOutput(lines, result.code)

    def _result(self, command: StringCommand, arguments: dict[str, Any]) -> CommandResult:
        seconds, around = arguments.pop("_timeout", None), arguments.pop("_around", None)
        stdin = _as_bytes(arguments.pop("_stdin", None))
        for name in ("_get_pty", "_success_exit_codes"):
            arguments.pop(name, None)
        if seconds:
            command = StringCommand(with_timeout(command.get_raw_value(), seconds))
        if around:
            command = StringCommand(around(command.get_raw_value()))
        line = make_unix_command(command, **arguments).get_raw_value()
        with gevent.Timeout(seconds and seconds + 3 * GRACE, NoAnswerError(-1, b"no answer")):
            return self.node.execute(line, stdin)


def pyinfra_host(node: NodeConnection, name: str) -> Host:
    """A host of pyinfra that reaches this node, for the commands of its operations."""
    data = {NODE: lambda: node}  # pyinfra copies values, but not functions
    inventory = Inventory(([(name, data)], {}))  # type: ignore[no-untyped-call]
    host: Host = inventory.get_host(name)
    host.connector_cls = NodeConnector
    State(inventory, Config())  # type: ignore[no-untyped-call]
    return host


def _node(state: State, name: str, data: Any) -> NodeConnection:
    """A node of any deploy. Its State's hosts share keys and jump hosts."""
    if not hasattr(state, SHARED):
        options = Options()
        transports = Transports(
            connect_timeout=options.connect_timeout,
            deadline=options.deadline,
            known_hosts=None,
            accept_new=False,
        )
        setattr(state, SHARED, transports)
    target = SshTarget(
        number=0,
        name=data["ssh_hostname"] or name,
        address=None,
        root="/",
        python=None,
        sudo=False,
        port=data["ssh_port"],
        user=data["ssh_user"],
        key_file=data["ssh_key"],
        known_hosts=data["ssh_known_hosts_file"],
    )
    config = SshConfig(data["ssh_config_file"])
    return NodeConnection(
        partial(config.resolve, target), getattr(state, SHARED), output_kept=sys.maxsize
    )


def _as_bytes(stdin: Any) -> bytes:
    """The bytes of pyinfra's `_stdin`: text, lines, an open file or bytes."""
    if stdin is None or isinstance(stdin, bytes):
        return stdin or b""
    if hasattr(stdin, "readlines"):
        stdin = stdin.readlines()
    lines = stdin if isinstance(stdin, (list, tuple)) else [stdin]
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode()


def _lines(output: bytes) -> list[str]:
    text = output.decode("utf-8", "backslashreplace")
    return text.removesuffix("\n").split("\n") if text else []
