"""The settings of ssh_config(5) for one host: the first value wins. Shard process only.

Follows readconf.c and ssh.c of OpenSSH 9.2. ssh itself need not be installed.
"""

import getpass
import hashlib
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodevet.fleet.ssh import match_exec
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.keywords import FOLLOWED
from nodevet.fleet.ssh.syntax import (
    Block,
    Blocks,
    ConfigOption,
    Criterion,
    HostPatterns,
    Include,
    Match,
    read,
    wants_final,
)
from nodevet.fleet.ssh.words import Hop, WordError, home, hops, is_listed, tokens

SYSTEM_CONFIG = "/etc/ssh/ssh_config"
USER_CONFIG = "~/.ssh/config"
SSH_PORT = 22
CANONICAL = {
    "canonicalizehostname": "no",
    "canonicalizemaxdots": "1",
    "canonicalizefallbacklocal": "yes",
}


@dataclass(frozen=True)
class ConfigValues:
    """The settings of one host, by keyword in lower case, without defaults."""

    name: str  # of the host before resolution
    hostname: str
    user: str
    port: int
    values: Mapping[str, tuple[str, ...]]
    jumps: tuple[Hop, ...]

    def first_value(self, keyword: str) -> str | None:
        return next(iter(self.values.get(keyword, ())), None)

    def is_yes(self, keyword: str) -> bool:
        return self.first_value(keyword) == "yes"

    def path(self, text: str) -> str:
        """A path with its ~, %tokens and ${VAR} replaced. Raises SshConfigError."""
        try:
            path = home(text)
            return tokens(path, self.tokens if "%" in path else {})
        except WordError as error:
            raise SshConfigError(f"ssh_config for {self.name}: {error}") from error

    @property
    def tokens(self) -> Mapping[str, str]:
        """The TOKENS of ssh_config(5), except those of single commands.

        %C is missing with a ProxyJump: OpenSSH 9.6 changed its meaning.
        """
        alias = self.first_value("hostkeyalias")
        known = _tokens(self.hostname, self.name, self.port, self.user, alias)
        if self.jumps:
            del known["C"]
        return known


class ConfigFiles:
    """The user's file, then the system's."""

    def __init__(self, files: tuple[Blocks, ...]) -> None:
        self._files = files
        self._final = any(wants_final(file) for file in files)

    def lookup(self, name: str, overrides: Mapping[str, tuple[str, ...]]) -> ConfigValues:
        """The settings of a host; `overrides` win, as options of ssh do. Raises SshConfigError."""
        values = dict(overrides)
        try:
            _Reading(values, name, name, final=False).read_files(self._files)
            for keyword, default in CANONICAL.items():  # a second pass does not change them
                values.setdefault(keyword, (default,))
            hostname = tokens(
                _first_value(values, "hostname") or name, {"h": name}, environment=False
            )
            hostname = _canonical(hostname, values)
            if self._final or _first_value(values, "canonicalizehostname") != "no":
                values["hostname"] = (hostname,)
                _Reading(values, hostname, name, final=True).read_files(self._files)
            if alias := _first_value(values, "hostkeyalias"):
                values["hostkeyalias"] = (alias.lower(),)
            jumps = hops(_first_value(values, "proxyjump") or "none")
        except WordError as error:
            raise SshConfigError(f"ssh_config for {name}: {error}") from error
        user = _first_value(values, "user") or _own_name()
        return ConfigValues(
            name, hostname, user, int(_first_value(values, "port") or SSH_PORT), values, jumps
        )


def load(path: str | None) -> ConfigFiles:
    """This file, or the user's and the system's. Raises SshConfigError."""
    if path is not None:
        return ConfigFiles((read(Path(path).expanduser(), user=True, checked=False)[0],))
    files, ignored = [], ""
    for name, user in ((USER_CONFIG, True), (SYSTEM_CONFIG, False)):
        try:
            file = Path(name).expanduser()
        except RuntimeError:  # a user without a home has no file there
            continue
        if file.exists():
            blocks, ignored = read(file, user=user, checked=user, ignored=ignored)
            files.append(blocks)
    return ConfigFiles(tuple(files))


class _Reading:
    """One pass over the files."""

    def __init__(
        self, values: dict[str, tuple[str, ...]], host: str, name: str, *, final: bool
    ) -> None:
        self._values = values
        self._host = host  # the name that Host lines match
        self._name = name
        self._final = final

    def read_files(self, files: tuple[Blocks, ...]) -> None:
        for file in files:
            self._file(file)

    def _file(self, blocks: Blocks) -> None:
        """Lines above the first Host of an included file apply like the Include itself."""
        for block in blocks:
            if not self._applies(block):
                continue
            for item in block.items:
                if isinstance(item, Include):
                    self.read_files(item.files)
                else:
                    self._take(item)

    def _applies(self, block: Block) -> bool:
        if isinstance(block.selector, HostPatterns):
            return block.selector.fits(self._host)
        return block.selector is None or self._matches(block.selector)

    def _take(self, setting: ConfigOption) -> None:
        keyword, values = setting.keyword, setting.values
        before = self._values.get(keyword)
        if keyword == "proxyjump":
            self._take_jump(values)
        elif before is None:
            self._values[keyword] = values
        elif FOLLOWED[keyword].adds:
            self._values[keyword] = tuple(dict.fromkeys(before + values))

    def _take_jump(self, values: tuple[str, ...]) -> None:
        """ProxyJump or ProxyCommand, whichever comes first."""
        if "proxyjump" in self._values or ("proxycommand" in self._values and hops(values[0])):
            return
        self._values["proxyjump"] = values
        if hops(values[0]):
            self._values["proxycommand"] = ("none",)

    def _matches(self, match: Match) -> bool:
        fulfilled = True
        for criterion in match.criteria:
            if criterion.attribute == "exec" and not fulfilled:
                continue
            holds = self._holds(criterion, match.where)
            fulfilled = fulfilled and holds is not criterion.negated
        return fulfilled

    def _holds(self, criterion: Criterion, where: str) -> bool:
        attribute, argument = criterion.attribute, criterion.argument
        host = _first_value(self._values, "hostname") or self._host
        if not self._final:
            host = tokens(host, {"h": self._host}, environment=False)
        user = _first_value(self._values, "user") or _own_name()
        if attribute == "exec":
            port = int(_first_value(self._values, "port") or SSH_PORT)
            alias = _first_value(self._values, "hostkeyalias") or host
            known = _tokens(host, self._name, port, user, alias)
            try:
                return match_exec.succeeds(tokens(argument, known, environment=False))
            except WordError as error:
                raise SshConfigError(f"ssh_config {where}: {error}") from error
        if attribute in ("host", "originalhost"):
            name = host if attribute == "host" else self._name
            return is_listed(name.lower(), argument.lower().split(","))
        if attribute in ("user", "localuser"):
            return is_listed(user if attribute == "user" else _own_name(), argument.split(","))
        return attribute == "all" or self._final


def _first_value(values: Mapping[str, tuple[str, ...]], keyword: str, default: str = "") -> str:
    return next(iter(values.get(keyword, ())), default)


def _own_name() -> str:
    """This process's user. Raises SshConfigError for a user without a name, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise SshConfigError(
            f"the local user, uid {os.getuid()}, has no name to log in with; name one: USER@HOST"
        ) from error


def _tokens(host: str, name: str, port: int, user: str, alias: str | None) -> dict[str, str]:
    hostname = socket.gethostname()
    hashed = hashlib.sha1(f"{hostname}{host}{port}{user}".encode(), usedforsecurity=False)
    return {
        "C": hashed.hexdigest(),
        "L": hostname.partition(".")[0],
        "d": home("~"),
        "h": host,
        "i": str(os.getuid()),
        "k": alias or name,
        "l": hostname,
        "n": name,
        "p": str(port),
        "r": user,
        "u": _own_name(),
    }


def _canonical(host: str, values: Mapping[str, tuple[str, ...]]) -> str:
    """The full name if CanonicalizeHostname asks for it; an address in its usual form. Raises
    SshConfigError."""
    allowed = _first_value(values, "addressfamily", "any")
    for family in (socket.AF_INET, socket.AF_INET6):
        if (address := _address(host, family)) is not None:
            return address if FAMILIES[allowed] in (family, socket.AF_UNSPEC) else host
    host = host.lower()
    canonical = _first_value(values, "canonicalizehostname")
    direct = _first_value(values, "proxycommand", "none").lower() == "none"
    direct = direct and not hops(_first_value(values, "proxyjump", "none"))
    if canonical == "no" or (canonical == "yes" and not direct):
        return host
    if _first_value(values, "canonicalizepermittedcnames", "none").lower() != "none":
        raise SshConfigError("ssh_config: CanonicalizePermittedCNAMEs is not supported")
    if host.endswith("."):
        candidates = [host]
    elif host.count(".") > int(_first_value(values, "canonicalizemaxdots")):
        return host
    else:
        domains = values.get("canonicaldomains", ())
        candidates = [f"{host}.{domain}." for domain in domains if domain.lower() != "none"]
    for candidate in candidates:
        with suppress(socket.gaierror, UnicodeError):
            socket.getaddrinfo(candidate, None, FAMILIES[allowed], socket.SOCK_STREAM)
            return candidate.removesuffix(".")
    if _first_value(values, "canonicalizefallbacklocal") == "no":
        raise SshConfigError(f"name not found: {host}, in none of CanonicalDomains")
    return host


FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}


def _address(host: str, family: int) -> str | None:
    """An address as getnameinfo(3) writes it; None if `host` is not an address of this family."""
    place, percent, zone = host.partition("%")
    with suppress(OSError):
        if family == socket.AF_INET6:
            packed = socket.inet_pton(family, place)
            return socket.inet_ntop(family, packed) + percent + zone
        if host[:1].isdigit() and not any(sign.isspace() for sign in host):
            return socket.inet_ntoa(socket.inet_aton(host))  # 127.1 too
    return None
