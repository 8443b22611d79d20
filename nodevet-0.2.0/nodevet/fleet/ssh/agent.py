"""A client of the ssh-agent, and an agent with one key for libssh: draft-ietf-sshm-ssh-agent.

libssh offers all keys of an agent, or none. nodevet offers one at a time, so libssh talks to
`serve`, which knows one key. Shard process only.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from gevent import socket

from nodevet.fleet.ssh.public_key import PublicKey, string, write_string

LIST, IDENTITIES, SIGN, SIGNATURE, FAILURE = 11, 12, 13, 14, 5
MESSAGE_LIMIT = 1 << 20  # bytes; OpenSSH's agent takes 256 KiB


class AgentError(Exception):
    """The agent hung up, or wrote what is not of the protocol."""


class AgentKey(NamedTuple):
    """A key that signs by an agent's messages. `answer`: the reply to a request to sign."""

    public: PublicKey
    comment: str
    answer: Callable[[bytes], bytes]


class AgentClient:
    """A connection to an agent."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def keys(self) -> list[AgentKey]:
        """Raises AgentError."""
        reply = self.ask(bytes([LIST]))
        if len(reply) < 5 or reply[0] != IDENTITIES:
            return []
        (count,), rest = struct.unpack_from(">I", reply, 1), reply[5:]
        keys = []
        try:
            for _ in range(count):
                blob, rest = string(rest)
                comment, rest = string(rest)
                string(blob)
                keys.append(AgentKey(PublicKey(blob), comment.decode("utf-8", "replace"), self.ask))
        except ValueError as error:
            raise AgentError(str(error)) from error
        return keys

    def ask(self, message: bytes) -> bytes:
        """The agent's reply. Raises AgentError."""
        try:
            self._socket.sendall(write_string(message))
            return _receive(self._socket)
        except OSError as error:
            raise AgentError(error.strerror or "it hung up") from error


def serve(sock: socket.socket, key: AgentKey) -> None:
    """Be an agent with this key alone, until the other end hangs up."""
    with suppress(OSError, AgentError):
        while True:
            sock.sendall(write_string(_reply(key, _receive(sock))))


def _reply(key: AgentKey, message: bytes) -> bytes:
    if message[:1] == bytes([LIST]):
        identity = write_string(key.public.blob) + write_string(b"")
        return struct.pack(">BI", IDENTITIES, 1) + identity
    if message[:1] == bytes([SIGN]):
        with suppress(AgentError):
            return key.answer(message)
    return bytes([FAILURE])


def signer(sign: Callable[[bytes], bytes], algorithm: str) -> Callable[[bytes], bytes]:
    """The answers of a key that this process holds. `sign`: the bytes of a signature."""

    def answer(message: bytes) -> bytes:
        _, rest = string(message[1:])  # the key
        text, _ = string(rest)
        signature = write_string(algorithm.encode()) + write_string(sign(text))
        return bytes([SIGNATURE]) + write_string(signature)

    return answer


def _receive(sock: socket.socket) -> bytes:
    """One message. Raises OSError and AgentError."""
    (size,) = struct.unpack(">I", _read(sock, 4))
    if size > MESSAGE_LIMIT:
        raise AgentError(f"a message of {size:,} bytes is too large")
    return _read(sock, size)


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise AgentError("it hung up")
        data += chunk
    return data
