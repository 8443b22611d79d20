"""How to reach one host: ssh_config(5) and the inventory, resolved. Shard process only."""

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import paramiko.config
from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize
from pyinfra.connectors.sshuserclient.config import SSHConfig

from nodevet.fleet import match_exec
from nodevet.fleet.errors import RouteError
from nodevet.fleet.known_hosts import spell
from nodevet.fleet.wire import Target

MAX_HOPS = 8
DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")

MATCHES = {"all", "canonical", "final", "exec", "host", "originalhost", "user", "localuser"}

_SAFE = re.compile(r"[A-Za-z0-9_.:%@\[\]][A-Za-z0-9_.:%@\[\]-]*")


@dataclass(frozen=True)
class KeyFile:
    """A private key on disk. A missing one is an error where the user named it for this host."""

    path: str
    certificate: str | None = None
    required: bool = False


@dataclass(frozen=True)
class Route:
    """Everything needed to open a session on one host."""

    hostname: str
    port: int
    user: str
    key_files: tuple[KeyFile, ...]
    agent: str | None  # path of its socket
    only_these_keys: bool  # IdentitiesOnly
    names: tuple[str, ...]  # as known_hosts may spell this host
    portless: tuple[str, ...]
    known_hosts: tuple[str, ...] | None  # UserKnownHostsFile
    proxy_command: str | None
    jump: "Route | None"

    @property
    def label(self) -> str:
        return spell(self.hostname, self.port)


class MatchExec:
    """What paramiko runs the command of `Match exec` with; it expects invoke's interface.

    pyinfra's own stand-in takes the command for a script, and lets it write to our stdout.
    """

    def __init__(self, ok: bool) -> None:
        self.ok = ok

    @staticmethod
    def run(command: str, **_: object) -> "MatchExec":
        return MatchExec(match_exec.fulfilled(command))


paramiko.config.invoke = MatchExec  # type: ignore[attr-defined]


def load(path: str | None) -> SSHConfig:
    """The user's ssh_config, Include followed. Raises RouteError where it cannot be read."""
    config = SSHConfig()
    file = Path(path or "~/.ssh/config").expanduser()
    if path is None and not file.exists():
        return config
    try:
        with file.open(encoding="utf-8") as lines:
            config.parse(lines)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise RouteError(f"ssh_config {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RouteError(f"ssh_config {file}: not UTF-8 text") from error
    except (ConfigParseError, ValueError, IndexError) as error:
        raise RouteError(f"ssh_config {file}: {error}") from error
    except Exception as error:
        if "Include loop" not in str(error):
            raise
        raise RouteError(f"ssh_config {file}: {error}") from error
    for stanza in config._config:  # type: ignore[attr-defined]
        for match in stanza.get("matches", ()):
            if match["type"] not in MATCHES:  # paramiko would take it as fulfilled
                raise RouteError(f"ssh_config {file}: Match {match['type']} is not supported")
    return config


class Routes:
    """Resolves hosts against one ssh_config, which is read when the first host needs it."""

    def __init__(self, path: str | None) -> None:
        """`path` instead of ~/.ssh/config."""
        self._load = lru_cache(maxsize=1)(partial(load, path))
        self._hop = lru_cache(maxsize=None)(self._resolve_hop)

    def resolve(self, target: Target) -> Route:
        """The way to one host of the inventory. Raises RouteError."""
        given = {
            "hostname": target.address,
            "port": str(target.port) if target.port else None,
            "user": target.user,
            "userknownhostsfile": f'"{target.known_hosts}"' if target.known_hosts else None,
        }
        keys = (KeyFile(target.key_file, required=True),) if target.key_file else ()
        return self._resolve(target.name, given, keys, ())

    def _resolve_hop(self, hop: str, before: Route | None, chain: tuple[str, ...]) -> Route:
        """One hop of a ProxyJump: `[user@]host[:port]`, or ssh://[user@]host[:port]."""
        if len(chain) > MAX_HOPS:
            raise RouteError(f"ProxyJump goes round in circles: {' -> '.join(chain)}")
        user, _, place = hop.removeprefix("ssh://").rpartition("@")
        bracketed = re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]+):(\d+)", place)
        host, port = place, None
        if bracketed:
            host = bracketed[1] or bracketed[3]
            port = bracketed[2] or bracketed[4]
        given = {"port": port, "user": user or None}
        return self._resolve(host, given, (), chain, before)

    def _resolve(
        self,
        name: str,
        given: Mapping[str, str | None],
        keys: tuple[KeyFile, ...],
        chain: tuple[str, ...],
        before: Route | None = None,
    ) -> Route:
        found = self._lookup(name, given)
        hostname = str(found["hostname"])
        user = str(found.get("user") or getpass.getuser())
        port = _port(found.get("port", "22"), name)
        proxy = found.get("proxycommand")
        if proxy and not all(_SAFE.fullmatch(word) for word in (name, hostname, user)):
            raise RouteError("ProxyCommand: the host or user name holds signs unsafe in a shell")
        alias = found.get("hostkeyalias")
        own = (spell(hostname, port), *((spell(name, port),) if given.get("hostname") else ()))
        return Route(
            hostname=hostname,
            port=port,
            user=user,
            key_files=keys or _key_files(found),
            agent=_agent(found.get("identityagent")),
            only_these_keys=_yes(found.get("identitiesonly")),
            names=(alias,) if alias else own,
            portless=() if alias or port == 22 else (hostname,),
            known_hosts=_files(found.get("userknownhostsfile")),
            proxy_command=None if before else proxy,
            jump=before or self._jump(found, chain, name, proxy),
        )

    def _jump(
        self, found: Mapping[str, Any], chain: tuple[str, ...], name: str, proxy: str | None
    ) -> Route | None:
        """The last hop before the host; each hop knows the one before it."""
        hops = found.get("proxyjump")
        if proxy or not hops or hops.lower() == "none":
            return None
        route: Route | None = None
        for hop in hops.split(","):
            route = self._hop(hop.strip(), route, (*chain, name))
        return route

    def _lookup(self, name: str, given: Mapping[str, str | None]) -> Mapping[str, Any]:
        """The options for a host; what the inventory gives wins, as on ssh's command line."""
        values = {key: value for key, value in given.items() if value}
        layered = self._load()
        if values:
            layered = SSHConfig()
            stanzas = self._load()._config  # type: ignore[attr-defined]
            layered._config = [{"host": ["*"], "config": values}, *stanzas]  # type: ignore[attr-defined]
        try:
            return layered.lookup(name)
        except (CouldNotCanonicalize, ValueError, KeyError) as error:
            raise RouteError(f"ssh_config for {name}: {error}") from error


class Way:
    """The way to one host: found once, by the first who asks, within that one's deadline."""

    def __init__(self, routes: Routes, target: Target) -> None:
        self._found = lru_cache(maxsize=1)(partial(routes.resolve, target))

    def route(self) -> Route:
        """Raises RouteError."""
        return self._found()


def _port(text: str, name: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise RouteError(f"port is {text!r} for {name}; it must be 1 to 65535")
    return int(text)


def _yes(text: str | None) -> bool:
    return (text or "").lower() in ("yes", "true")


def _files(text: str | None) -> tuple[str, ...] | None:
    """Paths, apart by white space, or in double quotes."""
    if text is None:
        return None
    words = (quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', text))
    return tuple(str(Path(word).expanduser()) for word in words)


def _agent(text: str | None) -> str | None:
    """The agent's socket: IdentityAgent, else $SSH_AUTH_SOCK."""
    if text is None or text == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK")
    if text.lower() == "none":
        return None
    return os.environ.get(text[1:]) if text.startswith("$") else str(Path(text).expanduser())


def _key_files(found: Mapping[str, Any]) -> tuple[KeyFile, ...]:
    """IdentityFile, each with the CertificateFile of its name, else ssh's default names."""
    named = [path for path in found.get("identityfile", ()) if path.lower() != "none"]
    certificate = found.get("certificatefile")
    if "identityfile" not in found:
        return tuple(KeyFile(str(Path(path).expanduser())) for path in DEFAULT_KEYS)
    return tuple(KeyFile(str(Path(path).expanduser()), certificate) for path in named)
