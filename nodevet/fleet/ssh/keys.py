"""The keys to offer to a node, in the order of trying them. Shard process only."""

import base64
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from paramiko import Message, PKey, SSHException
from paramiko.agent import AgentSSH
from pyinfra.api.exceptions import PyinfraError
from pyinfra.connectors.ssh_util import load_key_with_certificate

from nodevet.base.printable import brief
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.host_config import HostConfig, KeyFile


class SocketAgent(AgentSSH):
    """An agent at a given socket; paramiko's own uses the environment, which hosts share."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(path)
            self._connect(self._socket)  # type: ignore[attr-defined]
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()


class OfferedKey(NamedTuple):
    """A key and its name for people: its file, or its comment in the agent. Never a secret."""

    key: PKey
    name: str


class Keys:
    """Loads each key file once for all hosts."""

    def __init__(self) -> None:
        self._load = lru_cache(maxsize=None)(_load)

    def offer(
        self, config: HostConfig, agents: list[SocketAgent], unusable: list[str]
    ) -> Iterator[OfferedKey]:
        """The user's key for this host, then the agent's, then the rest, in ssh's order.

        Adds an opened agent to `agents`, for the caller to close, and the reasons why key files
        cannot be used to `unusable`. Raises SshConfigError if neither the file nor the agent has a
        key that the user named for this host.
        """
        faults = []
        for file in (file for file in config.key_files if file.required):
            try:
                yield from _offered(self._load(file), file)
            except SshConfigError as error:
                faults.append(error)
        own, others = _agent_keys(config, agents)
        known = {key.asbytes() for key in own}
        if faults and not own:
            raise faults[0]
        yield from map(_of_agent, own)
        if not config.only_these_keys:
            yield from map(_of_agent, others)
        for file in (file for file in config.key_files if not file.required):
            if Path(file.path).is_file() and _public(file.path) not in known:
                try:
                    yield from _offered(self._load(file), file)
                except SshConfigError as error:
                    unusable.append(str(error))


def _offered(keys: Sequence[PKey], file: KeyFile) -> Iterator[OfferedKey]:
    """The keys of a file; the first of two has a certificate."""
    for key in keys:
        certified = " with its certificate" if key is not keys[-1] else ""
        yield OfferedKey(key, f"{_from_home(file.path)}{certified}")


def _from_home(path: str) -> str:
    """`~/.ssh/id_ed25519`, as the user would type it."""
    with suppress(RuntimeError, ValueError):  # a user without a home; a key outside of it
        return f"~/{Path(path).relative_to(Path.home())}"
    return path


def _of_agent(key: PKey) -> OfferedKey:
    name = getattr(key, "comment", "") or key.fingerprint
    return OfferedKey(key, f"{brief(name)} from ssh-agent")


def _agent_keys(
    config: HostConfig, agents: list[SocketAgent]
) -> tuple[Sequence[PKey], Sequence[PKey]]:
    """The agent's keys that ssh_config lists as files, and its others; none if no agent answers."""
    if not config.agent:
        return [], []
    try:
        agent = SocketAgent(config.agent)
    except (OSError, SSHException):
        return [], []
    agents.append(agent)
    public = {_public(file.path) for file in config.key_files}
    own = [key for key in agent.get_keys() if key.asbytes() in public]
    return own, [key for key in agent.get_keys() if key not in own]


def _load(file: KeyFile) -> tuple[PKey, ...]:
    """A private key, preceded by the same key with its certificate if it has one.

    Raises SshConfigError; never asks for a passphrase.
    """
    if Path(file.path).exists() and not Path(file.path).is_file():
        raise SshConfigError(f"key file {file.path}: not a regular file")
    try:
        key = _private(file.path)
        for path in file.certificates or (f"{file.path}-cert.pub",):
            if Path(path).is_file() and _certifies(path, key):
                certified = _private(file.path)
                certified.load_certificate(path)
                return certified, key
        return (key,)
    except PyinfraError as error:
        words = str(error)
        if "No such private key" in words:
            raise SshConfigError(f"key file not found: {file.path}") from error
        if "encrypted" in words:
            why = "is encrypted; add it to an ssh-agent"
            raise SshConfigError(f"key file {file.path} {why}") from error
        raise SshConfigError(f"key file {file.path} is not a private key") from error
    except OSError as error:
        raise SshConfigError(f"key file {file.path}: {error.strerror}") from error
    except (SSHException, ValueError) as error:
        raise SshConfigError(f"key file {file.path}: {error}") from error


def _private(path: str) -> PKey:
    """A private key alone. Raises PyinfraError, OSError, SSHException, ValueError."""
    return load_key_with_certificate(
        key_filename=path, certificate_filename=os.devnull, allow_prompt=False
    )


def _certifies(path: str, key: PKey) -> bool:
    """Whether a file is a certificate for this key: PROTOCOL.certkeys, type, nonce, public key."""
    try:
        words = Path(path).read_text(encoding="utf-8").split()
        certificate = Message(base64.b64decode(words[1], validate=True))
        if not certificate.get_text().endswith("-cert-v01@openssh.com"):
            return False
        certificate.get_string()
        public = Message(key.asbytes())
        public.get_text()
        return certificate.get_remainder().startswith(public.get_remainder())
    except (OSError, ValueError, IndexError, SSHException):
        return False


def _public(path: str) -> bytes | None:
    """The public half of a key file: the .pub beside it, or the file itself if it is public."""
    for name in (f"{path}.pub", path):
        with suppress(OSError, ValueError, IndexError):
            kind, blob = Path(name).read_text(encoding="utf-8").split()[:2]
            if not kind.startswith("-"):
                return base64.b64decode(blob, validate=True)
    return None
