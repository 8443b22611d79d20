"""pyinfra's SSH connector, bounded. Shard process only.

What differs from pyinfra's: host keys are checked against known_hosts as ssh does
it; jump hosts are checked too, and shared; output is bytes and capped; the exit
code is kept; and closing it closes the session on the node.
"""

from typing import Any

import gevent
from paramiko import Channel, SSHException
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors.base import DataMeta
from pyinfra.connectors.ssh import ConnectorData, SSHConnector, connector_data_meta
from pyinfra.connectors.sshuserclient.client import SSHClient

from nodevet.fleet.errors import UnreachableError
from nodevet.fleet.payload import Answer
from nodevet.fleet.reach import Link, Reach
from nodevet.fleet.route import Route

CHUNK = 1 << 16
STDERR_KEPT = 1 << 16  # bytes; more is read and dropped


class NodeData(ConnectorData):
    nodevet_route: Route
    nodevet_reach: Reach


class NoAnswerError(Exception):
    """The node's command ended, or the connection did, and gave no evidence."""

    def __init__(self, code: int, stderr: bytes) -> None:
        super().__init__(code)
        self.code = code  # -1: the connection was lost
        self.stderr = stderr


class NodeConnector(SSHConnector):
    """A connection to one node. `stage` says what it is waiting for."""

    data_cls = NodeData  # type: ignore[assignment]
    data_meta = {  # noqa: RUF012  # an instance attribute to pyinfra's types
        **connector_data_meta,
        "nodevet_route": DataMeta("How to reach the host"),
        "nodevet_reach": DataMeta("What opens its connection"),
    }
    data: Any
    stage = "waiting"

    def __init__(self, state: State, host: Host) -> None:
        super().__init__(state, host)
        self.link = Link()

    def connect(self) -> None:
        """Raises RouteError, and as pyinfra's ConnectError UnreachableError and TooLateError."""
        self.stage = "connecting"
        client = SSHClient()
        self.transport = self.data["nodevet_reach"].open(self.data["nodevet_route"], self.link)
        client._transport = self.transport  # type: ignore[attr-defined]
        self.client = client

    def ask(self, command: str, stdin: bytes, answer: Answer) -> bytes:
        """Run a command that reads `stdin`, until the evidence in its output is whole.

        Raises NoAnswerError where it ends without, AnswerError where it cannot become whole.
        """
        self.stage = "opening a session"
        try:
            channel = self.transport.open_session()
        except (SSHException, OSError, EOFError) as error:
            raise UnreachableError(f"no session: {error or 'connection lost'}") from error
        try:
            return self._converse(channel, command, stdin, answer)
        finally:
            channel.close()

    def _converse(self, channel: Channel, command: str, stdin: bytes, answer: Answer) -> bytes:
        complaint = bytearray()
        self.stage = "starting the probe"
        try:
            channel.exec_command(command)
            self.stage = "running the probe"
            listener = gevent.spawn(_listen, channel, complaint)
            try:
                _send(channel, stdin)
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

    def disconnect(self) -> None:
        self.link.close()
        self.client = None


def _send(channel: Channel, stdin: bytes) -> None:
    """Send all of stdin. A command that ends without reading it says why by its exit code."""
    try:
        channel.sendall(stdin)
        channel.shutdown_write()
    except OSError:
        return


def _listen(channel: Channel, complaint: bytearray) -> None:
    """Keep the first bytes of stderr, and read on, so that the node is not held up."""
    while chunk := channel.recv_stderr(CHUNK):
        complaint += chunk[: max(0, STDERR_KEPT - len(complaint))]
