"""The keys to offer to a node, in the order of trying them. Shard process only."""

import base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ssh.exceptions import KeyImportError
from ssh.key import SSHKey, copy_cert_to_privkey, import_cert_file, import_privkey_file

from nodevet.base.printable import brief
from nodevet.fleet.ssh import public_key
from nodevet.fleet.ssh.agent import AgentClient, AgentError, AgentKey, signer
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.host_config import HostConfig, KeyFile
from nodevet.fleet.ssh.public_key import PublicKey

OPENSSH = b"openssh-key-v1\0"  # of OpenSSH's PROTOCOL.key; the name of the cipher follows
KEY_LIMIT = 1 << 20  # bytes; keys have some thousand


@dataclass(frozen=True)
class FileKey:
    """A private key on disk, perhaps with its certificate."""

    public: PublicKey
    private: SSHKey


class OfferedKey(NamedTuple):
    """A key and its name for people: its file, or its comment in the agent. Never a secret."""

    key: FileKey | AgentKey
    name: str


class Keys:
    """Loads each key file once for all hosts."""

    def __init__(self) -> None:
        self._load = lru_cache(maxsize=None)(_load)

    def offer(
        self, config: HostConfig, agents: list[AgentClient], unusable: list[str]
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
        known = {key.public for key in own}
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


def _offered(keys: Sequence[FileKey | AgentKey], file: KeyFile) -> Iterator[OfferedKey]:
    """The keys of a file; the first of two has a certificate."""
    for key in keys:
        certified = " with its certificate" if key is not keys[-1] else ""
        yield OfferedKey(key, f"{_from_home(file.path)}{certified}")


def _from_home(path: str) -> str:
    """`~/.ssh/id_ed25519`, as the user would type it."""
    with suppress(RuntimeError, ValueError):  # a user without a home; a key outside of it
        return f"~/{Path(path).relative_to(Path.home())}"
    return path


def _of_agent(key: AgentKey) -> OfferedKey:
    return OfferedKey(key, f"{brief(key.comment or key.public.fingerprint)} from ssh-agent")


def _agent_keys(
    config: HostConfig, agents: list[AgentClient]
) -> tuple[Sequence[AgentKey], Sequence[AgentKey]]:
    """The agent's keys that ssh_config lists as files, and its others; none if no agent answers."""
    if not config.agent:
        return [], []
    try:
        agent = AgentClient(config.agent)
        agents.append(agent)
        keys = agent.keys()
    except (OSError, AgentError):
        return [], []
    public = {_public(file.path) for file in config.key_files}
    own = [key for key in keys if key.public in public]
    return own, [key for key in keys if key not in own]


def _load(file: KeyFile) -> tuple[FileKey | AgentKey, ...]:
    """A private key, preceded by the same key with its certificate if it has one.

    Raises SshConfigError; never asks for a passphrase.
    """
    key = _private(file.path)
    for path in file.certificates or (f"{file.path}-cert.pub",):
        with suppress(OSError, ValueError):
            certificate = public_key.read_line(Path(path).read_text(encoding="utf-8"))
            if certificate.certifies(key.public):
                return _certified(file.path, path, certificate), key
    return (key,)


def _private(path: str) -> FileKey:
    """A private key alone. Raises SshConfigError."""
    if Path(path).exists() and not Path(path).is_file():
        raise SshConfigError(f"key file {path}: not a regular file")
    try:
        private = import_privkey_file(path)
    except KeyImportError as error:
        raise SshConfigError(f"key file {_fault(path)}") from error
    text = private.export_privkey_to_pubkey().export_pubkey_base64()
    public = public_key.read_line(f"key {text.decode()}")
    if public.type.startswith("sk-"):
        raise SshConfigError(f"key file {path} belongs to a FIDO token; add it to an ssh-agent")
    return FileKey(public, private)


def _fault(path: str) -> str:
    """Why libssh cannot read a key file, which it does not say."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(KEY_LIMIT)
    except FileNotFoundError:
        return f"not found: {path}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    if _is_encrypted(text):
        return f"{path} is encrypted; add it to an ssh-agent"
    return f"{path} is not a private key"


def _is_encrypted(text: bytes) -> bool:
    """Whether a private key needs a passphrase: PROTOCOL.key, RFC 1421 and RFC 5958."""
    with suppress(ValueError):
        body = base64.b64decode(b"".join(b"".join(text.split(b"-----")[2:3]).split()))
        if body.startswith(OPENSSH):
            return public_key.string(body[len(OPENSSH) :])[0] != b"none"
    return b"ENCRYPTED" in text


def _certified(path: str, certificate_path: str, certificate: PublicKey) -> FileKey | AgentKey:
    """A key with its certificate. libssh 0.11 joins no ED25519 key with one, so this process signs
    for it as an agent does."""
    if not certificate.type.startswith("ssh-ed25519"):
        private = _private(path).private
        copy_cert_to_privkey(import_cert_file(certificate_path), private)
        return FileKey(certificate, private)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    key = load_ssh_private_key(Path(path).read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)  # noqa: S101  # as its certificate says
    return AgentKey(certificate, "", signer(key.sign, "ssh-ed25519"))


def _public(path: str) -> PublicKey | None:
    """The public half of a key file: the .pub beside it, or the file itself if it is public."""
    for name in (f"{path}.pub", path):
        with suppress(OSError, ValueError):
            return public_key.read_line(Path(name).read_text(encoding="utf-8"))
    return None
