"""Open an authenticated SSH link to a host, hop by hop. Shard process only.

Every wait is bounded: TCP, banner and key exchange by the connect timeout, the rest by the host's
deadline, which the caller enforces.
"""

import errno
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import Any, TypeAlias

import gevent
from gevent import socket
from gevent.monkey import get_original

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.fleet.ssh import algorithms
from nodevet.fleet.ssh.agent import AgentClient, AgentKey
from nodevet.fleet.ssh.banner import await_banner
from nodevet.fleet.ssh.errors import (
    HungUpError,
    LocalError,
    NoBannerError,
    OtherKeyError,
    PassingError,
    SshConfigError,
    TooLateError,
    UnreachableError,
    connect_error,
    handshake_failure,
    jump_host_error,
    resolution_error,
)
from nodevet.fleet.ssh.host_config import HostConfig
from nodevet.fleet.ssh.host_keys import HostKeys
from nodevet.fleet.ssh.keys import FileKey, Keys
from nodevet.fleet.ssh.link import DeniedError, ForwardError, Link, SettingError, SshError
from nodevet.fleet.ssh.public_key import PublicKey

PAUSES = (0.5, 1, 2, 4)  # seconds, plus or minus a half, before another try
MOST_KEYS = 3  # that a message names
ENDING = 0.2  # seconds for a ProxyCommand to end after it hung up
NOT_RUN = {
    126: "ProxyCommand: its program cannot be run",
    127: "ProxyCommand: its program was not found",
}
"""By the exit code of its shell."""


class Connection:
    """The resources of one connection, which are closed together."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.agents: list[AgentClient] = []
        self.proxy: Popen[bytes] | None = None
        self.steps: list[str] = []  # what was done so far, for `--verbose`

    def close(self) -> None:
        if self.link is not None:
            self.link.close()
        for agent in self.agents:
            agent.close()
        self.end_proxy()

    def missing_proxy(self) -> str:
        """Why the ProxyCommand could not run at all, or ""."""
        if self.proxy is None:
            return ""
        with suppress(TimeoutExpired):
            self.proxy.wait(ENDING)
        return NOT_RUN.get(self.proxy.returncode, "")

    def end_proxy(self) -> None:
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.wait()


Jump: TypeAlias = "gevent.Greenlet[[HostConfig], tuple[Link, Connection]]"


class Transports:
    """Opens links for all hosts of a shard, which share keys and jump hosts."""

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
    ) -> Link:
        """An authenticated link; its resources are added to `connection` as they open.

        `seconds`: the time limit; None: the deadline of a host. Raises UnreachableError,
        TooLateError and SshConfigError.
        """
        connection.steps.append(_plan_text(config))
        end = time.monotonic() + (self._deadline if seconds is None else seconds)
        types = self._host_keys.types(config)
        try:
            link = self._open_trusted(config, connection, types, end)
        except OtherKeyError:
            known_types = self._host_keys.types(config)
            if known_types == types:
                raise
            connection.close()
            link = self._open_trusted(config, connection, known_types, end)
        self._authenticate(config, link, connection)
        return link

    def _open_trusted(
        self, config: HostConfig, connection: Connection, types: Sequence[str], end: float
    ) -> Link:
        """A link whose host key is known; prefers keys of these types."""
        started = time.monotonic()
        sock = self._await_greeting(config, connection, end)
        connection.steps.append(f"connected after {elapsed(time.monotonic() - started)}")
        address = sock.getpeername()[0] if config.check_ip else ""
        link = connection.link = _link(sock, config, types)
        key = self._handshake(link)
        connection.steps.append(f"{link.server_text}, host key {brief(key.type)} {key.fingerprint}")
        self._host_keys.check(config, key.type, key.base64, address)
        if not algorithms.is_large_enough(config, key):
            raise LocalError(f"host key of {key.rsa_bits} bits: RequiredRSASize is larger")
        return link

    def close(self) -> None:
        """Close the connections to jump hosts."""
        for greenlet in self._jumps.values():
            if greenlet.successful():
                greenlet.get()[1].close()
            else:
                greenlet.kill()

    def _await_greeting(
        self, config: HostConfig, connection: Connection, end: float
    ) -> socket.socket:
        """A socket on which the server's banner has arrived.

        A server with too many unauthenticated connections (sshd's MaxStartups) hangs up on some of
        them, and a busy machine is late with its banner: neither is a fault of the node, so nodevet
        tries again while time is left until `end`. A server that hangs up costs a moment and gets a
        few tries; one that is silent costs the timeout and gets one more.
        """
        pauses, silent = iter(PAUSES), 0
        while True:
            sock = self._socket(config, connection)
            try:
                await_banner(sock, self._timeout)
                return sock
            except (HungUpError, NoBannerError) as error:
                if why := connection.missing_proxy():
                    raise LocalError(why) from error
                connection.end_proxy()
                pause, silent = next(pauses, None), silent + isinstance(error, NoBannerError)
                if pause is None or silent > 1:
                    raise
                pause *= random.uniform(0.5, 1.5)  # noqa: S311
                cost = pause + (self._timeout if silent else 0)
                if time.monotonic() + cost >= end:
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
            raise resolution_error(error) from error
        except UnicodeError as error:
            raise LocalError("name not found: it is not a valid host name") from error
        except OSError as error:
            if error.errno == errno.ETIMEDOUT:
                raise TooLateError("connection timed out") from error
            raise connect_error(error) from error

    def _handshake(self, link: Link) -> PublicKey:
        """Exchange keys; returns the server's."""
        try:
            with gevent.Timeout(self._timeout, TimeoutError()):
                link.handshake()
            return link.server_key
        except TimeoutError as error:
            raise TooLateError(
                f"timed out after {elapsed(self._timeout)} (key exchange)"
            ) from error
        except SshError as error:
            raise handshake_failure(error) from error

    def _authenticate(self, config: HostConfig, link: Link, connection: Connection) -> None:
        offered: list[str] = []
        unusable: list[str] = []
        denied = f"permission denied for {brief(config.user)}"
        for key, name in self._keys.offer(config, connection.agents, unusable):
            if not algorithms.is_allowed(config, key.public):
                unusable.append(f"ssh_config does not allow the key of type {key.public.type}")
                continue
            offered.append(name)
            connection.steps.append(f"offered key {brief(name)}")
            try:
                _login(link, key)
            except DeniedError as error:
                if error.partly:
                    raise LocalError(f"{denied} (the server also requires {error})") from error
                if error.methods and "publickey" not in error.methods and link.is_active:
                    raise LocalError(f"{denied} (the server accepts {error})") from error
            except SshError as error:
                if len(offered) == 1 and not link.is_active:
                    raise UnreachableError("connection closed during authentication") from error
            else:
                connection.steps.append("the server accepted it")
                return
            if not link.is_active:
                break
        details = [f"offered: {_names_text(offered)}"] if offered else []
        if len(offered) > 1 and not link.is_active:
            details.append("the server accepts no more; name the right key, or set IdentitiesOnly")
        details += unusable
        why = "; ".join(details) or "no key to offer: no ssh-agent, no key file"
        raise LocalError(f"{denied} ({why})")

    def _through(self, hop: HostConfig, config: HostConfig) -> socket.socket:
        """A connection through a jump host, whose own connection the hosts of the shard share."""
        try:
            stream = self._jump(hop).forward(config.hostname, config.port)
        except (UnreachableError, SshConfigError) as error:
            raise jump_host_error(error, f"jump host {hop.label}: {error}") from error
        except TooLateError as error:
            raise TooLateError(f"jump host {hop.label}: {error}") from error
        except ForwardError as error:
            why = f"jump host {hop.label} cannot connect: {error}"
            raise PassingError(why.removesuffix(": ")) from error
        except SshError as error:
            raise PassingError(f"jump host {hop.label}: connection lost") from error
        return stream.as_socket()

    def _jump(self, hop: HostConfig) -> Link:
        """The connection to a jump host: one attempt at a time, and a new one after its end."""
        opening = self._jumps.get(hop)
        if opening is not None and opening.successful() and not opening.get()[0].is_active:
            opening.get()[1].close()
            opening = None
        if opening is None or (opening.ready() and not opening.successful()):
            opening = self._jumps[hop] = gevent.spawn(self._open_jump, hop)
        link: Link = opening.get()[0]
        return link

    def _open_jump(self, hop: HostConfig) -> tuple[Link, Connection]:
        connection = Connection()
        try:
            seconds = self._timeout * 3
            with gevent.Timeout(seconds, TooLateError(f"timed out after {elapsed(seconds)}")):
                return self.open(hop, connection, seconds), connection
        except BaseException:
            connection.close()
            raise


def _link(sock: socket.socket, config: HostConfig, types: Sequence[str]) -> Link:
    """Raises SshConfigError, and then closes the socket."""
    try:
        return Link(sock, config.user, algorithms.settings(config, types))
    except SettingError as error:
        sock.close()
        raise SshConfigError(f"for libssh {error}") from error
    except BaseException:
        sock.close()
        raise


def _login(link: Link, key: FileKey | AgentKey) -> None:
    """Raises DeniedError and SshError."""
    if isinstance(key, FileKey):
        link.login(key.private)
    else:
        link.login_by_agent(key)


def _plan_text(config: HostConfig) -> str:
    """`root@10.0.0.7 port 22 through bastion`."""
    jump = f" through {config.jump.label}" if config.jump else ""
    proxy = f" by ProxyCommand {config.proxy_command}" if config.proxy_command else ""
    return brief(
        f"log in as {config.user} on {config.hostname} port {config.port}{jump}{proxy}", 1000
    )


def _names_text(names: Sequence[str]) -> str:
    more = len(names) - MOST_KEYS
    return ", ".join(names[:MOST_KEYS]) + (f" and {more} more" if more > 0 else "")


def _connect(config: HostConfig) -> socket.socket:
    """Like socket.create_connection, with AddressFamily and BindAddress."""
    addresses = _addresses(config)
    failure = OSError(errno.EADDRNOTAVAIL, "no address")
    for family, kind, protocol, _, place in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            if config.bind:
                sock.bind((config.bind, 0))
            sock.connect(place)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


def _addresses(config: HostConfig) -> list[tuple[Any, ...]]:
    """As getaddrinfo(3) returns them. A thread looks up a name; an address needs none."""
    words = config.hostname, config.port, config.family, socket.SOCK_STREAM
    with suppress(OSError):
        lookup = get_original("socket", "getaddrinfo")
        return list(lookup(*words, flags=socket.AI_NUMERICHOST))
    return list(socket.getaddrinfo(*words))


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
