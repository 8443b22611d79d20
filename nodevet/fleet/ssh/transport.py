"""Opens an authenticated SSH transport to a host, hop by hop. Shard process only.

Every wait is bounded: TCP, banner and key exchange by the connect timeout, the
rest by the host's deadline, which the caller holds.
"""

import errno
import random
import socket
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import TypeAlias, cast

import gevent
from paramiko import BadAuthenticationType, SSHException, Transport
from paramiko.ssh_exception import AuthenticationException, ChannelException

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.fleet.ssh import algorithms
from nodevet.fleet.ssh.banner import BoundedPacketizer, BufferedSocket, await_banner
from nodevet.fleet.ssh.errors import (
    HungUpError,
    LocalError,
    NoBannerError,
    OtherKeyError,
    PassingError,
    SshConfigError,
    TooLateError,
    UnreachableError,
    alike,
    handshake_failure,
    not_connected,
    unresolved,
)
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.host_keys import HostKeys
from nodevet.fleet.ssh.keys import Keys, SocketAgent

PAUSES = (0.5, 1, 2, 4)  # seconds, give or take a half, before a server that hung up is tried again
MOST_KEYS = 3  # that a message names
ENDING = 0.2  # seconds in which a ProxyCommand ends that hung up
NOT_RUN = {
    126: "ProxyCommand: its program cannot be run",
    127: "ProxyCommand: its program was not found",
}
"""By the exit code of the shell that was to run it."""
FOREVER = 3600  # seconds; the host's deadline is sooner


class Connection:
    """What one open connection holds, to be closed together."""

    def __init__(self) -> None:
        self.transport: Transport | None = None
        self.agents: list[SocketAgent] = []
        self.proxy: Popen[bytes] | None = None

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
        for agent in self.agents:
            agent.close()
        self.end_proxy()

    def missing_proxy(self) -> str:
        """Why the ProxyCommand could not be run at all; empty if it could."""
        if self.proxy is None:
            return ""
        with suppress(TimeoutExpired):
            self.proxy.wait(ENDING)
        return NOT_RUN.get(self.proxy.returncode, "")

    def end_proxy(self) -> None:
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.wait()


Jump: TypeAlias = "gevent.Greenlet[[HostConfig], tuple[Transport, Connection]]"


class Transports:
    """Opens transports for all hosts of a shard, sharing what they can share."""

    def __init__(
        self,
        *,
        connect_timeout: float,
        deadline: float,
        known_hosts: str | None,
        accept_new: bool,
    ) -> None:
        self._timeout = connect_timeout
        self._deadline = deadline
        self._host_keys = HostKeys(
            known_hosts=known_hosts, accept_new=accept_new, patience=connect_timeout
        )
        self._keys = Keys()
        self._jumps: dict[HostConfig, Jump] = {}

    def open(
        self, config: HostConfig, connection: Connection, seconds: float | None = None
    ) -> Transport:
        """An authenticated transport; what it holds goes into `connection` as it comes to be.

        `seconds`: what the caller gives it; without it the deadline of a host. Raises
        UnreachableError, TooLateError and SshConfigError.
        """
        end = time.monotonic() + (self._deadline if seconds is None else seconds)
        types = self._host_keys.types(config)
        try:
            transport = self._trusted(config, connection, types, end)
        except OtherKeyError:
            found = self._host_keys.types(config)
            if found == types:
                raise
            connection.close()
            transport = self._trusted(config, connection, found, end)
        self._authenticate(config, transport, connection)
        return transport

    def _trusted(
        self, config: HostConfig, connection: Connection, types: Sequence[str], end: float
    ) -> Transport:
        """A transport whose host key is known; keys of these types are asked for first."""
        sock = self._greeted(config, connection, end)
        transport = connection.transport = self._handshake(config, sock, types)
        shown = transport.get_remote_server_key()
        key = b64encode(shown.asbytes()).decode()
        address = sock.getpeername()[0] if config.check_ip else ""
        self._host_keys.check(config, shown.get_name(), key, address)
        if not algorithms.large(config, shown):
            raise LocalError(f"host key of {shown.get_bits()} bits: RequiredRSASize is larger")
        return transport

    def close(self) -> None:
        """Close the connections to jump hosts."""
        for greenlet in self._jumps.values():
            if greenlet.successful():
                greenlet.get()[1].close()
            else:
                greenlet.kill()

    def _greeted(self, config: HostConfig, connection: Connection, end: float) -> BufferedSocket:
        """A connection on which the server's banner was heard.

        A server with too many connections in their beginnings (sshd's MaxStartups) hangs up
        on some of them, and a busy machine is late to greet: that says nothing about the node,
        so it is tried again as far as there is time until `end`. One that hangs up costs a moment
        and is tried a few times; one that is silent costs the timeout, and is tried once more.
        """
        pauses, silent = iter(PAUSES), 0
        while True:
            sock = self._socket(config, connection)
            try:
                return await_banner(sock, self._timeout)
            except (HungUpError, NoBannerError) as error:
                if why := connection.missing_proxy():
                    raise LocalError(why) from error
                connection.end_proxy()
                pause, silent = next(pauses, None), silent + isinstance(error, NoBannerError)
                if pause is None or silent > 1:
                    raise
                pause *= random.uniform(0.5, 1.5)  # noqa: S311
                again = pause + (self._timeout if silent else 0)
                if time.monotonic() + again >= end:
                    raise
                gevent.sleep(pause)

    def _socket(self, config: HostConfig, connection: Connection) -> socket.socket:
        if config.jump is not None:
            return self._through(config.jump, config)
        if config.proxy_command:
            return _proxy(config.proxy_command, connection)
        try:
            with gevent.Timeout(self._timeout, TimeoutError()):
                return _connect(config)
        except TimeoutError as error:
            raise TooLateError(f"timed out after {elapsed(self._timeout)} (connecting)") from error
        except socket.gaierror as error:
            raise unresolved(error) from error
        except UnicodeError as error:
            raise LocalError("name not found: it is not a valid host name") from error
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                raise TooLateError("connection timed out") from error
            raise not_connected(error) from error

    def _handshake(
        self, config: HostConfig, sock: BufferedSocket, types: Sequence[str]
    ) -> Transport:
        """Key exchange."""
        transport = Transport(cast(socket.socket, sock), packetizer_class=BoundedPacketizer)
        transport.banner_timeout = self._timeout + 1
        transport.auth_timeout = FOREVER
        transport.channel_timeout = FOREVER  # type: ignore[attr-defined]
        try:
            algorithms.narrow(transport, config, types)
            with gevent.Timeout(self._timeout, TimeoutError()):
                transport.start_client()
            cast(BoundedPacketizer, transport.packetizer).agreed = True
        except TimeoutError as error:
            transport.close()
            raise TooLateError(
                f"timed out after {elapsed(self._timeout)} (key exchange)"
            ) from error
        except (SSHException, OSError, EOFError) as error:
            transport.close()
            raise handshake_failure(error) from error
        except BaseException:
            transport.close()
            raise
        return transport

    def _authenticate(
        self, config: HostConfig, transport: Transport, connection: Connection
    ) -> None:
        offered: list[str] = []
        unusable: list[str] = []
        denied = f"permission denied for {brief(config.user)}"
        for key, name in self._keys.offer(config, connection.agents, unusable):
            if not algorithms.usable(config, key):
                unusable.append(f"ssh_config does not allow the key of type {key.get_name()}")
                continue
            offered.append(name)
            try:
                more = transport.auth_publickey(config.user, key)
            except BadAuthenticationType as error:
                accepted = ", ".join(error.allowed_types)
                raise LocalError(f"{denied} (the server accepts {accepted})") from error
            except AuthenticationException:
                if transport.is_active():
                    continue
                break
            except (SSHException, OSError, EOFError) as error:
                if transport.is_active():
                    continue
                if len(offered) > 1:
                    break
                raise UnreachableError("connection closed during authentication") from error
            if more:
                raise LocalError(f"{denied} (the server also requires {', '.join(more)})")
            return
        told = [f"offered: {_some(offered)}"] if offered else []
        if len(offered) > 1 and not transport.is_active():
            told.append("the server accepts no more; name the right key, or set IdentitiesOnly")
        told += unusable
        why = "; ".join(told) or "no key to offer: no ssh-agent, no key file"
        raise LocalError(f"{denied} ({why})")

    def _through(self, hop: HostConfig, config: HostConfig) -> socket.socket:
        """A channel through a jump host, whose connection all hosts of the shard share."""
        try:
            target = (config.hostname, config.port)
            channel = self._jump(hop).open_channel("direct-tcpip", target, ("127.0.0.1", 0))
        except (UnreachableError, SshConfigError) as error:
            raise alike(error, f"jump host {hop.label}: {error}") from error
        except TooLateError as error:
            raise TooLateError(f"jump host {hop.label}: {error}") from error
        except ChannelException as error:
            raise PassingError(f"jump host {hop.label} cannot connect: {error.text}") from error
        except (SSHException, OSError, EOFError) as error:
            raise PassingError(f"jump host {hop.label}: connection lost") from error
        return channel  # type: ignore[return-value]  # paramiko's channels act as sockets

    def _jump(self, hop: HostConfig) -> Transport:
        """The connection to a jump host: one attempt at a time, a new one when it is gone."""
        opening = self._jumps.get(hop)
        if opening is not None and opening.successful() and not opening.get()[0].is_active():
            opening.get()[1].close()
            opening = None
        if opening is None or (opening.ready() and not opening.successful()):
            opening = self._jumps[hop] = gevent.spawn(self._open_jump, hop)
        transport: Transport = opening.get()[0]
        return transport

    def _open_jump(self, hop: HostConfig) -> tuple[Transport, Connection]:
        connection = Connection()
        try:
            seconds = self._timeout * 3
            with gevent.Timeout(seconds, TooLateError(f"timed out after {elapsed(seconds)}")):
                return self.open(hop, connection, seconds), connection
        except BaseException:
            connection.close()
            raise


def _some(names: Sequence[str]) -> str:
    left = len(names) - MOST_KEYS
    return ", ".join(names[:MOST_KEYS]) + (f" and {left} more" if left > 0 else "")


def _connect(config: HostConfig) -> socket.socket:
    """As socket.create_connection, with AddressFamily and BindAddress."""
    found = socket.getaddrinfo(config.hostname, config.port, config.family, socket.SOCK_STREAM)
    failed = OSError(errno.EADDRNOTAVAIL, "no address")
    for family, kind, protocol, _, place in found:
        sock = socket.socket(family, kind, protocol)
        try:
            if config.bind:
                sock.bind((config.bind, 0))
            sock.connect(place)
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failed


def _proxy(command: str, connection: Connection) -> socket.socket:
    """A ProxyCommand on one end of a socket pair, run by the user's shell as ssh does."""
    ours, theirs = socket.socketpair()
    with theirs:
        connection.proxy = Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=DEVNULL,
        )
    return ours
