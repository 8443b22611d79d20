"""How to transports one host: ssh_config(5) and the inventory, resolved. Shard process only."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from nodevet.fleet.protocol.framing import SshTarget
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.jump import Hop
from nodevet.fleet.ssh.known_hosts import spell
from nodevet.fleet.ssh.ssh_config import FAMILIES, ConfigValues, load
from nodevet.fleet.ssh.words import WordError, home, tokens

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
    """How to open a session on one host: what ssh_config(5) and the inventory say, resolved."""

    hostname: str
    port: int
    user: str
    key_files: tuple[KeyFile, ...]
    agent: str | None  # path of its socket
    only_these_keys: bool  # IdentitiesOnly
    names: tuple[str, ...]  # as known_hosts may spell this host
    portless: tuple[str, ...]
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
    """Resolves hosts against one ssh_config, which is read when the first host needs it."""

    def __init__(self, path: str | None) -> None:
        """`path` instead of ~/.ssh/config and /etc/ssh/ssh_config."""
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
        given = {
            "hostname": address,
            "port": str(target.port) if target.port else None,
            "user": target.user,
            "userknownhostsfile": files,
        }
        keys = (KeyFile(target.key_file, required=True),) if target.key_file else ()
        return self._resolve(target.name, given, keys, ())

    def _resolve_hop(
        self, hop: Hop, before: HostConfig | None, chain: tuple[str, ...]
    ) -> HostConfig:
        """One hop of a ProxyJump."""
        if len(chain) > MAX_HOPS:
            raise SshConfigError(f"ProxyJump is a loop: {' -> '.join(chain)}")
        given = {"port": str(hop.port) if hop.port else None, "user": hop.user}
        return self._resolve(hop.host, given, (), chain, before)

    def _resolve(
        self,
        name: str,
        given: Mapping[str, str | None],
        keys: tuple[KeyFile, ...],
        chain: tuple[str, ...],
        before: HostConfig | None = None,
    ) -> HostConfig:
        told = {key: (value,) for key, value in given.items() if value}
        found = self._load().lookup(name, told)
        _refuse(found)
        jump, proxy = before, None
        if before is None:
            jump = self._jump(found, chain)
            proxy = None if jump else _proxy_command(found)
        hostname, port, alias = found.hostname, found.port, found.one("hostkeyalias")
        told_of = [each for each in ALGORITHMS if each in found.values]
        own = (spell(hostname, port), *((spell(name, port),) if given.get("hostname") else ()))
        return HostConfig(
            hostname=hostname,
            port=port,
            user=found.user,
            key_files=keys or _key_files(found),
            agent=_agent(found),
            only_these_keys=found.yes("identitiesonly"),
            names=(alias,) if alias else own,
            portless=() if alias or port == 22 else (hostname,),
            known_hosts=_files(found, "userknownhostsfile", USER_FILES),
            proxy_command=proxy,
            jump=jump,
            system_known_hosts=_files(found, "globalknownhostsfile", SYSTEM_FILES),
            revoked=_revoked(found),
            check_ip=found.yes("checkhostip") and not (jump or proxy),
            hash_names=found.yes("hashknownhosts"),
            family=FAMILIES[found.one("addressfamily") or "any"],
            bind=found.one("bindaddress"),
            algorithms=tuple((each, found.values[each][0]) for each in told_of),
        )

    def _jump(self, found: ConfigValues, chain: tuple[str, ...]) -> HostConfig | None:
        """The last hop before the host; each hop knows the one before it."""
        config: HostConfig | None = None
        for hop in found.jumps:
            config = self._hop(hop, config, (*chain, found.name))
        return config


def _refuse(found: ConfigValues) -> None:
    """Raises SshConfigError for what is not supported and would connect otherwise than ssh."""
    unsupported = {
        "KnownHostsCommand": (found.one("knownhostscommand") or "none").lower() != "none",
        "BindInterface": found.one("bindinterface") is not None,
        "ProxyUseFdpass yes": found.yes("proxyusefdpass") and not found.jumps,
        "PubkeyAuthentication no": found.one("pubkeyauthentication") == "no",
    }
    for words, asked in unsupported.items():
        if asked:
            raise SshConfigError(f"ssh_config for {found.name}: {words} is not supported")
    if refused := found.one("refuseconnection"):
        raise SshConfigError(f"ssh_config for {found.name}: RefuseConnection: {refused}")
    if any(sign in found.user for sign in ("%", "${")) and "user" in found.values:
        why = "a User with % or ${ is not supported: versions of ssh differ about it"
        raise SshConfigError(f"ssh_config for {found.name}: {why}")


def _proxy_command(found: ConfigValues) -> str | None:
    command = found.one("proxycommand")
    if not command or command.lower() == "none":
        return None
    if not all(_SAFE.fullmatch(word) for word in (found.name, found.hostname, found.user)):
        raise SshConfigError("ProxyCommand: host or user name with characters unsafe in a shell")
    known = {sign: found.tokens[sign] for sign in "hknpr"}
    try:
        return tokens(command, known, environment=False)
    except WordError as error:
        raise SshConfigError(f"ssh_config for {found.name}: {error}") from error


def _files(found: ConfigValues, keyword: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Files of host keys. The system's have no tokens."""
    files = found.values.get(keyword, default)
    if files and files[0].lower() == "none":
        return ()
    if keyword == "globalknownhostsfile":
        return tuple(_home(found, file) for file in files)
    return tuple(found.path(file) for file in files)


def _revoked(found: ConfigValues) -> str | None:
    file = found.one("revokedhostkeys")
    return None if not file or file.lower() == "none" else _home(found, file)


def _home(found: ConfigValues, path: str) -> str:
    try:
        return home(path)
    except WordError as error:
        raise SshConfigError(f"ssh_config for {found.name}: {error}") from error


def _agent(found: ConfigValues) -> str | None:
    """The agent's socket: IdentityAgent, else $SSH_AUTH_SOCK."""
    text = found.one("identityagent")
    if text is None or text == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    if text == "none":
        return None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:])
    return found.path(text)


def _key_files(found: ConfigValues) -> tuple[KeyFile, ...]:
    """IdentityFile, else ssh's default names, each with every CertificateFile."""
    certificates = tuple(found.path(each) for each in found.values.get("certificatefile", ()))
    files = found.values.get("identityfile", DEFAULT_KEYS)
    named = (file for file in files if file.lower() != "none")
    return tuple(KeyFile(found.path(file), certificates) for file in named)
