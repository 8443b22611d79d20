"""How to reach one host: ssh_config(5) and the inventory, resolved. Shard process only."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from nodevet.fleet.protocol.framing import SshTarget
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.known_hosts import spell
from nodevet.fleet.ssh.ssh_config import FAMILIES, ConfigValues, load
from nodevet.fleet.ssh.words import Hop, WordError, home, tokens

MAX_HOPS = 8
DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
USER_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
ALGORITHMS = (
    "ciphers", "macs", "kexalgorithms", "hostkeyalgorithms", "pubkeyacceptedalgorithms",
    "requiredrsasize",
)  # fmt: skip

_SAFE = re.compile(r"[A-Za-z0-9_.:%@\[\]][A-Za-z0-9_.:%@\[\]-]*")


@dataclass(frozen=True)
class KeyFile:
    """A private key on disk. A missing one is an error if the user named it for this host."""

    path: str
    certificates: tuple[str, ...] = ()  # CertificateFile; one of them may be of this key
    required: bool = False


@dataclass(frozen=True)
class HostConfig:
    """How to open a session on one host, resolved from ssh_config(5) and the inventory."""

    hostname: str
    port: int
    user: str
    key_files: tuple[KeyFile, ...]
    agent: str | None  # path of its socket
    only_these_keys: bool  # IdentitiesOnly
    names: tuple[str, ...]  # of this host in known_hosts
    portless: tuple[str, ...]  # its names without the port, which may only confirm a key
    known_hosts: tuple[str, ...]  # UserKnownHostsFile
    proxy_command: str | None = None
    jump: "HostConfig | None" = None
    system_known_hosts: tuple[str, ...] = SYSTEM_FILES  # GlobalKnownHostsFile
    revoked: str | None = None  # RevokedHostKeys
    check_ip: bool = False  # CheckHostIP
    hash_names: bool = False  # HashKnownHosts
    family: int = 0  # AddressFamily, as of the socket module
    bind: str | None = None  # BindAddress
    algorithms: tuple[tuple[str, str], ...] = ()  # keyword and list

    @property
    def label(self) -> str:
        return spell(self.hostname, self.port)


class SshConfig:
    """Resolves hosts against one ssh_config, which is read for the first host."""

    def __init__(self, path: str | None) -> None:
        """`path`: read this instead of ~/.ssh/config and /etc/ssh/ssh_config."""
        self._load = lru_cache(maxsize=1)(partial(load, path))
        self._hop = lru_cache(maxsize=None)(self._resolve_hop)

    def resolve(self, target: SshTarget) -> HostConfig:
        """How to reach one host of the inventory. Raises SshConfigError."""
        if target.port is not None and not 0 < target.port < 65536:
            raise SshConfigError(
                f"port is '{target.port}' for {target.name}; it must be 1 to 65535"
            )
        address = target.address.replace("%", "%%") if target.address else None
        files = target.known_hosts.replace("%", "%%") if target.known_hosts else None
        overrides = {
            "hostname": address,
            "port": str(target.port) if target.port else None,
            "user": target.user,
            "userknownhostsfile": files,
        }
        keys = (KeyFile(target.key_file, required=True),) if target.key_file else ()
        return self._resolve(target.name, overrides, keys, ())

    def _resolve_hop(
        self, hop: Hop, previous: HostConfig | None, chain: tuple[str, ...]
    ) -> HostConfig:
        """One hop of a ProxyJump."""
        if len(chain) > MAX_HOPS:
            raise SshConfigError(f"ProxyJump is a loop: {' -> '.join(chain)}")
        overrides = {"port": str(hop.port) if hop.port else None, "user": hop.user}
        return self._resolve(hop.host, overrides, (), chain, previous)

    def _resolve(
        self,
        name: str,
        overrides: Mapping[str, str | None],
        keys: tuple[KeyFile, ...],
        chain: tuple[str, ...],
        previous: HostConfig | None = None,
    ) -> HostConfig:
        options = {key: (value,) for key, value in overrides.items() if value}
        values = self._load().lookup(name, options)
        _refuse(values)
        jump, proxy = previous, None
        if previous is None:
            jump = self._jump(values, chain)
            proxy = None if jump else _proxy_command(values)
        hostname, port, alias = values.hostname, values.port, values.first_value("hostkeyalias")
        keywords = [keyword for keyword in ALGORITHMS if keyword in values.values]
        names = (
            spell(hostname, port),
            *((spell(name, port),) if overrides.get("hostname") else ()),
        )
        return HostConfig(
            hostname=hostname,
            port=port,
            user=values.user,
            key_files=keys or _key_files(values),
            agent=_agent(values),
            only_these_keys=values.is_yes("identitiesonly"),
            names=(alias,) if alias else names,
            portless=() if alias or port == 22 else (hostname,),
            known_hosts=_files(values, "userknownhostsfile", USER_FILES),
            proxy_command=proxy,
            jump=jump,
            system_known_hosts=_files(values, "globalknownhostsfile", SYSTEM_FILES),
            revoked=_revoked(values),
            check_ip=values.is_yes("checkhostip") and not (jump or proxy),
            hash_names=values.is_yes("hashknownhosts"),
            family=FAMILIES[values.first_value("addressfamily") or "any"],
            bind=values.first_value("bindaddress"),
            algorithms=tuple((keyword, values.values[keyword][0]) for keyword in keywords),
        )

    def _jump(self, values: ConfigValues, chain: tuple[str, ...]) -> HostConfig | None:
        """The last hop before the host; each hop refers to the previous one."""
        config: HostConfig | None = None
        for hop in values.jumps:
            config = self._hop(hop, config, (*chain, values.name))
        return config


def _refuse(values: ConfigValues) -> None:
    """Raises SshConfigError for unsupported settings with which ssh would connect differently."""
    unsupported = {
        "KnownHostsCommand": (values.first_value("knownhostscommand") or "none").lower() != "none",
        "BindInterface": values.first_value("bindinterface") is not None,
        "ProxyUseFdpass yes": values.is_yes("proxyusefdpass") and not values.jumps,
        "PubkeyAuthentication no": values.first_value("pubkeyauthentication") == "no",
    }
    for words, is_set in unsupported.items():
        if is_set:
            raise SshConfigError(f"ssh_config for {values.name}: {words} is not supported")
    if reason := values.first_value("refuseconnection"):
        raise SshConfigError(f"ssh_config for {values.name}: RefuseConnection: {reason}")
    if any(sign in values.user for sign in ("%", "${")) and "user" in values.values:
        why = "a User with % or ${ is not supported: versions of ssh differ about it"
        raise SshConfigError(f"ssh_config for {values.name}: {why}")


def _proxy_command(values: ConfigValues) -> str | None:
    command = values.first_value("proxycommand")
    if not command or command.lower() == "none":
        return None
    if not all(_SAFE.fullmatch(word) for word in (values.name, values.hostname, values.user)):
        raise SshConfigError("ProxyCommand: host or user name with characters unsafe in a shell")
    known = {sign: values.tokens[sign] for sign in "hknpr"}
    try:
        return tokens(command, known, environment=False)
    except WordError as error:
        raise SshConfigError(f"ssh_config for {values.name}: {error}") from error


def _files(values: ConfigValues, keyword: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Files of host keys. Only the user's files may have tokens."""
    files = values.values.get(keyword, default)
    if files and files[0].lower() == "none":
        return ()
    if keyword == "globalknownhostsfile":
        return tuple(_home(values, file) for file in files)
    return tuple(values.path(file) for file in files)


def _revoked(values: ConfigValues) -> str | None:
    file = values.first_value("revokedhostkeys")
    return None if not file or file.lower() == "none" else _home(values, file)


def _home(values: ConfigValues, path: str) -> str:
    try:
        return home(path)
    except WordError as error:
        raise SshConfigError(f"ssh_config for {values.name}: {error}") from error


def _agent(values: ConfigValues) -> str | None:
    """The agent's socket: IdentityAgent, else $SSH_AUTH_SOCK."""
    text = values.first_value("identityagent")
    if text is None or text == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    if text == "none":
        return None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:])
    return values.path(text)


def _key_files(values: ConfigValues) -> tuple[KeyFile, ...]:
    """IdentityFile, else ssh's default names, each with every CertificateFile."""
    certificates = tuple(values.path(file) for file in values.values.get("certificatefile", ()))
    files = values.values.get("identityfile", DEFAULT_KEYS)
    named = (file for file in files if file.lower() != "none")
    return tuple(KeyFile(values.path(file), certificates) for file in named)
