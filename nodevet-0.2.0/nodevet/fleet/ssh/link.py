"""One SSH connection over libssh, by ssh-python. A greenlet that waits lets the others run.

libssh reads all packets that have arrived in any call, also those of other channels. So a greenlet
that waits is woken if the socket is ready, and after each call of another greenlet that may have
read its packet. Shard process only.
"""

import base64
import fcntl
import os
import re
import struct
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast

import gevent
from gevent import get_hub, socket
from gevent.event import Event
from ssh import exceptions, options
from ssh.channel import Channel
from ssh.error_codes import SSH_AGAIN
from ssh.key import SSHKey
from ssh.session import Session

from nodevet.base.printable import brief
from nodevet.fleet.ssh.agent import AgentKey, serve
from nodevet.fleet.ssh.banner import has_hung_up
from nodevet.fleet.ssh.public_key import PublicKey

READ, WRITE = 1, 2  # of libev
WRITE_PENDING = 8  # of ssh_get_status
AUTH_AGAIN = 4  # of ssh_userauth_publickey
CHUNK = 1 << 16
TURN = 1 << 18  # bytes of one server before the other hosts get a turn
HANDSHAKE_LIMIT = 1 << 20  # bytes until the keys are agreed on; a key exchange takes some thousand
LOST_WAKE = 2.0  # seconds between two wakes of greenlets that nothing else may wake
STREAMS = (False, True, False)  # is it stderr? To read stderr may also bring bytes of stdout
METHODS = {2: "password", 4: "publickey", 8: "hostbased", 16: "keyboard-interactive", 32: "gssapi"}
"""By the bits of ssh_userauth_list."""

OPEN_FAILURE = re.compile(r"Channel opening failure: channel (\d+) error \(\d+\) (.*)", re.DOTALL)
"""libssh's word about RFC 4254's SSH_MSG_CHANNEL_OPEN_FAILURE. It keeps only the last one."""

BEFORE_CHANNELS = 42  # libssh counts a link's channels from the next number


class SshError(Exception):
    """The connection is lost, or the server refused; the message says why."""


class DeniedError(SshError):
    """The server does not accept a key. `methods`: those with which the login may continue."""

    def __init__(self, methods: tuple[str, ...], *, partly: bool) -> None:
        super().__init__(", ".join(methods))
        self.methods = methods
        self.partly = partly  # it accepted the key, and asks for more


class ForwardError(SshError):
    """A jump host cannot connect to a host; the message is its own, "" if it is not known."""


class SettingError(ValueError):
    """libssh refuses a user's name or a list of algorithms."""


class Link:
    """A connection. `sock`: connected; the link closes it."""

    def __init__(self, sock: socket.socket, user: str, settings: Mapping[str, str]) -> None:
        """`settings`: algorithms by the names of ssh.options. Raises SettingError."""
        self._session: Session | None = _session(user, settings)
        self._sock = sock
        self._user = user
        self._read = 0  # bytes that were there to read before the keys were agreed on
        self._agreed = False
        self._waiting = 0  # greenlets
        self._woken = Event()
        self._readable = get_hub().loop.io(sock.fileno(), READ)
        self._again = get_hub().loop.timer(LOST_WAKE, LOST_WAKE)
        self._again.start(self._wake)
        self._channels = BEFORE_CHANNELS  # the number of the last one
        self._agent: socket.socket | None = None

    def handshake(self) -> None:
        """Exchange keys. Raises SshError.

        libssh closes its own descriptor of the socket, however the exchange ends.
        """
        session = self._require()
        descriptor = socket.socket(fileno=os.dup(self._sock.fileno()))
        session.set_socket(descriptor)
        descriptor.detach()
        self.call(self._connect)
        self._agreed = True

    def _connect(self) -> int:
        code = self._require().connect()
        os.set_blocking(self._sock.fileno(), False)  # libssh lets its send wait for the other end
        return int(code)

    @property
    def server_key(self) -> PublicKey:
        """The key that the server has shown. Raises SshError."""
        try:
            text: bytes = self._require().get_server_publickey().export_pubkey_base64()
            return PublicKey(base64.b64decode(text, validate=True))
        except (exceptions.BaseSSHError, ValueError) as error:
            raise SshError("the server's key cannot be read") from error

    @property
    def server_text(self) -> str:
        """`SSH-2.0-OpenSSH_9.2, aes256-gcm@openssh.com`."""
        session = self._require()
        banner, cipher = session.get_serverbanner() or b"", session.get_cipher_in() or b""
        return f"{brief(banner.decode('utf-8', 'replace'))}, {cipher.decode()}"

    @property
    def is_active(self) -> bool:
        """Whether neither end has closed the connection, as far as this machine knows."""
        if self._session is None or not self._session.is_connected():
            return False
        return not has_hung_up(self._sock)

    def close(self) -> None:
        """Hang up; greenlets and threads that wait for this link end with SshError."""
        if self._session is None:
            return
        self._session = None  # libssh frees it with its last channel
        for sock in (self._sock, self._agent):
            if sock is not None:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        if self._agent is not None:
            self._agent.close()
        if self._waiting:
            self._wake()  # the last that waits ends the rest: libev still watches the socket
        else:
            self._end()

    def login(self, key: SSHKey) -> None:
        """Log in with a private key. Raises DeniedError and SshError."""
        self.call(self._require().userauth_publickey, key, again=AUTH_AGAIN)

    def login_by_agent(self, key: AgentKey) -> None:
        """Log in with a key that an agent holds. Raises DeniedError and SshError.

        libssh waits for its agent, and so in a thread.
        """
        session, ours = self._require(), self._agent_socket()
        server = gevent.spawn(serve, ours, key)
        session.set_blocking(1)
        try:
            error = get_hub().threadpool.apply(_login_by_agent, (session, self._user))
        finally:
            session.set_blocking(0)
            server.kill()
        if error is not None:
            raise self.error(error) from error

    def _agent_socket(self) -> socket.socket:
        """Our end of a pair; libssh closes the other one."""
        if self._agent is None:
            self._agent, theirs = socket.socketpair()
            self._require().set_agent_socket(theirs)
            theirs.detach()
        return self._agent

    def open(self) -> "Stream":
        """A channel for a command. Raises SshError."""
        channel = self._channel()
        self.call(channel.open_session)
        return Stream(self, channel)

    def forward(self, host: str, port: int) -> "Stream":
        """A connection from the server to a host: RFC 4254 section 7.2.

        Raises ForwardError and SshError.
        """
        channel = self._channel()
        number = self._channels
        try:
            self.call(channel.open_forward, host, port, "127.0.0.1", 0)
        except SshError as error:
            match = OPEN_FAILURE.fullmatch(str(error))
            if match and int(match[1]) == number:
                raise ForwardError(match[2]) from error
            if self.is_active:  # the words are of another channel
                raise ForwardError("") from error
            raise
        return Stream(self, channel)

    def _channel(self) -> Channel:
        """A channel to open, at once."""
        self._channels += 1
        with self.errors():
            return self._require().channel_new()

    def call(self, function: Callable[..., Any], *arguments: Any, again: int = SSH_AGAIN) -> Any:
        """The result of a call of libssh, once it has one. Raises SshError."""
        while True:
            arrived = self.arrived()
            try:
                result = function(*arguments)
            except exceptions.BaseSSHError as error:
                raise self.error(error) from error
            if result != again:
                self._wake()
                return result
            self.wait(arrived)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """libssh's errors as DeniedError and SshError."""
        try:
            yield
        except exceptions.BaseSSHError as error:
            raise self.error(error) from error

    def error(self, error: Exception) -> SshError:
        """An error of libssh as DeniedError or SshError."""
        self._wake()
        partly = isinstance(error, exceptions.AuthenticationPartial)
        session = self._session
        if session is not None and (partly or isinstance(error, exceptions.AuthenticationDenied)):
            mask = session.userauth_list() if session.is_connected() else 0
            return DeniedError(tuple(METHODS[bit] for bit in METHODS if mask & bit), partly=partly)
        text = session.get_error() if session is not None else ""
        return SshError(brief(text or "connection lost"))

    def arrived(self) -> int:
        """The bytes that wait to be read. Raises SshError for a link that is closed."""
        self._require()
        if self._agreed and not self._waiting:
            return 0  # nobody asks
        try:
            text = fcntl.ioctl(self._sock.fileno(), termios.FIONREAD, b"\0\0\0\0")
        except OSError as error:
            raise SshError(error.strerror or "connection lost") from error
        count: int = struct.unpack("i", text)[0]
        self._read += 0 if self._agreed else count
        if self._read > HANDSHAKE_LIMIT:
            raise SshError(f"more than {HANDSHAKE_LIMIT:,} bytes before the keys are agreed on")
        return count

    def wait(self, arrived: int) -> None:
        """Wait until another call may have a result. `arrived`: bytes before the last call."""
        if arrived:
            self._wake()
        woken = self._woken
        self._waiting += 1
        self._readable.start(self._wake)
        try:
            with self._writable():
                woken.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._readable.stop()
                if self._session is None:
                    self._end()

    @contextmanager
    def _writable(self) -> Iterator[None]:
        """Wake also once the socket has room, if libssh has more to send."""
        with self.errors():
            pending = self._require().get_status() & WRITE_PENDING
        if not pending:
            yield
            return
        watcher = get_hub().loop.io(self._sock.fileno(), WRITE)
        watcher.start(self._wake)
        try:
            yield
        finally:
            watcher.stop()
            watcher.close()

    def _wake(self) -> None:
        if self._waiting:
            woken, self._woken = self._woken, Event()
            woken.set()

    def _end(self) -> None:
        for watcher in (self._readable, self._again):
            watcher.stop()
            watcher.close()
        self._sock.close()

    def _require(self) -> Session:
        if self._session is None:
            raise SshError("connection lost")
        return self._session


def _login_by_agent(session: Session, user: str) -> Exception | None:
    """libssh's error, if any: gevent would print one that a thread raises."""
    try:
        session.userauth_agent(user)
    except exceptions.BaseSSHError as error:
        return cast(Exception, error)
    return None


def _session(user: str, settings: Mapping[str, str]) -> Session:
    session = Session()
    session.options_set_int_val(options.PROCESS_CONFIG, 0)  # nodevet reads ssh_config
    values = {"HOST": "host", "USER": user, **settings}  # libssh wants a host; it looks nothing up
    for name, value in values.items():
        try:
            session.options_set(getattr(options, name), value)
        except exceptions.BaseSSHError as error:
            raise SettingError(f"{name.lower()} is {value!r}, which it refuses") from error
    session.set_blocking(0)
    return session


class Stream:
    """A channel: a command's input and output, or a forwarded connection."""

    def __init__(self, link: Link, channel: Channel) -> None:
        self._link = link
        self._channel = channel
        self._turn = 0  # bytes since the last turn of others

    def begin(self, command: str) -> None:
        """Run a command on the node. Raises SshError."""
        self._link.call(self._request, command)

    def _request(self, command: str) -> int:
        code = self._channel.request_exec(command)
        if code == SSH_AGAIN and self._channel.is_closed():
            raise exceptions.ChannelClosed  # libssh would still wait for a reply
        return int(code)

    def converse(self, stdin: bytes, *, end: bool = True) -> Iterator[tuple[bool, bytes]]:
        """Send `stdin` and, if `end`, its end; yields (is stderr?, bytes) until both end.

        If a command ends without reading its stdin, its exit code says why. Raises SshError.
        """
        rest, is_open = memoryview(stdin), end
        while True:
            arrived = self._link.arrived()
            try:
                sent = self._send(rest)
            except SshError:  # the command has ended, or reading says more
                rest, is_open, sent = rest[:0], False, 0
            rest = rest[sent:]
            if not rest and is_open:
                is_open = False
                self._finish()
            for is_error in STREAMS:
                if chunk := self._take(is_error):
                    yield is_error, chunk
                    break
            else:
                if self._has_ended():
                    return
                if not sent:
                    self._link.wait(arrived)

    def read(self) -> bytes:
        """Some bytes of stdout, or b"" at its end. Raises SshError."""
        while True:
            arrived = self._link.arrived()
            if chunk := self._take(False):
                return chunk
            if self._has_ended():
                return b""
            self._link.wait(arrived)

    def write(self, data: bytes) -> None:
        """Send all. Raises SshError."""
        rest = memoryview(data)
        while rest:
            arrived = self._link.arrived()
            sent = self._send(rest)
            rest = rest[sent:]
            if not sent:
                if self._has_ended():
                    raise SshError("the other end has closed")
                self._link.wait(arrived)

    def exit_code(self) -> int:
        """The code of a command that has ended; -1 if a signal ended it, or the connection."""
        while True:
            arrived = self._link.arrived()
            try:
                with self._link.errors():
                    code, signal, _ = self._channel.get_exit_state()
            except SshError:
                return -1
            if code != SSH_AGAIN or self._channel.is_closed():
                return -1 if signal or code < 0 else int(code)
            self._link.wait(arrived)

    def as_socket(self) -> socket.socket:
        """One end of a pair; this stream feeds and reads the other until one of the two ends."""
        ours, theirs = socket.socketpair()
        gevent.spawn(self._carry, theirs)
        return ours

    def _carry(self, sock: socket.socket) -> None:
        with sock:
            upward = gevent.spawn(self._feed, sock)
            with suppress(OSError, SshError):
                while data := self.read():
                    sock.sendall(data)
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # ends `_feed`
            upward.join()

    def _feed(self, sock: socket.socket) -> None:
        """Send what arrives at a socket, and then hang up."""
        with suppress(OSError, SshError):
            while data := sock.recv(CHUNK):
                self.write(data)
        self.close()
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)  # ends `_carry`

    def close(self) -> None:
        """Hang up on the command."""
        with suppress(SshError, exceptions.BaseSSHError):
            self._link.arrived()
            self._channel.close()

    def _send(self, rest: memoryview) -> int:
        """Send what the server has room for; returns the number of bytes."""
        if not rest or self._has_ended():
            return 0
        room = self._room()
        if not room:
            return 0
        try:
            code, sent = self._channel.write(bytes(rest[: min(room, CHUNK)]))
        except exceptions.BaseSSHError as error:
            raise self._link.error(error) from error
        return int(sent) if code >= 0 else 0

    def _room(self) -> int:
        """The server's window: RFC 4254 section 5.2. ssh-python's write waits for a larger one, and
        no other host gets a turn."""
        if not self._channel.window_size():
            for is_error in (False, True):
                with suppress(exceptions.BaseSSHError):
                    self._channel.poll(is_error)  # a larger window may have arrived
        return int(self._channel.window_size())

    def _finish(self) -> None:
        with suppress(SshError):
            self._link.call(self._channel.send_eof)

    def _take(self, is_error: bool) -> bytes:
        """The bytes that have arrived on a stream, perhaps none."""
        try:
            size, data = self._channel.read_nonblocking(CHUNK, is_error)
        except exceptions.EOF:
            return b""
        except exceptions.BaseSSHError as error:
            raise self._link.error(error) from error
        self._turn += max(0, size)
        if self._turn > TURN:
            self._turn = 0
            gevent.sleep(0)
        return bytes(data) if size > 0 else b""

    def _has_ended(self) -> bool:
        return bool(self._channel.is_eof() or self._channel.is_closed())
