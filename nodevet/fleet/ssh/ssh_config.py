"""What ssh_config(5) says about one host: the first value wins. Shard process only.

Written after readconf.c and ssh.c of OpenSSH 9.2, without ssh itself: it need not be installed.
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
from nodevet.fleet.ssh.jump import Hop, hops
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
from nodevet.fleet.ssh.words import WordError, home, listed, tokens

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
    """The settings of one host, by keyword in lower case; nothing for what no line says."""

    name: str  # as the host was asked for
    hostname: str
    user: str
    port: int
    values: Mapping[str, tuple[str, ...]]
    jumps: tuple[Hop, ...]

    def one(self, keyword: str) -> str | None:
        return next(iter(self.values.get(keyword, ())), None)

    def yes(self, keyword: str) -> bool:
        return self.one(keyword) == "yes"

    def path(self, text: str) -> str:
        """A path with its ~, %tokens and ${VAR} replaced. Raises SshConfigError."""
        try:
            return tokens(home(text), self.tokens)
        except WordError as error:
            raise SshConfigError(f"ssh_config for {self.name}: {error}") from error

    @property
    def tokens(self) -> Mapping[str, str]:
        """TOKENS of ssh_config(5), all that are for more than one command.

        %C is not there with a ProxyJump: from OpenSSH 9.6 on it has another meaning.
        """
        alias = self.one("hostkeyalias")
        known = _tokens(self.hostname, self.name, self.port, self.user, alias)
        if self.jumps:
            del known["C"]
        return known


class ConfigFiles:
    """The user's file, and the system's after it."""

    def __init__(self, files: tuple[Blocks, ...]) -> None:
        self._files = files
        self._final = any(wants_final(file) for file in files)

    def lookup(self, name: str, given: Mapping[str, tuple[str, ...]]) -> ConfigValues:
        """The settings of a host; those given win, as options of ssh do. Raises SshConfigError."""
        found = dict(given)
        try:
            _Pass(found, name, name, final=False).through(self._files)
            for keyword, default in CANONICAL.items():  # a second pass does not change them
                found.setdefault(keyword, (default,))
            hostname = tokens(_one(found, "hostname") or name, {"h": name}, environment=False)
            hostname = _canonical(hostname, found)
            if self._final or _one(found, "canonicalizehostname") != "no":
                found["hostname"] = (hostname,)
                _Pass(found, hostname, name, final=True).through(self._files)
            if alias := _one(found, "hostkeyalias"):
                found["hostkeyalias"] = (alias.lower(),)
            jumps = hops(_one(found, "proxyjump") or "none")
        except WordError as error:
            raise SshConfigError(f"ssh_config for {name}: {error}") from error
        user = _one(found, "user") or _own_name()
        return ConfigValues(
            name, hostname, user, int(_one(found, "port") or SSH_PORT), found, jumps
        )


def load(path: str | None) -> ConfigFiles:
    """This file, or the user's own and then the system's. Raises SshConfigError."""
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


class _Pass:
    """Once through the files."""

    def __init__(
        self, found: dict[str, tuple[str, ...]], host: str, name: str, *, final: bool
    ) -> None:
        self._found = found
        self._host = host  # what Host speaks of
        self._name = name
        self._final = final

    def through(self, files: tuple[Blocks, ...]) -> None:
        for file in files:
            self._file(file)

    def _file(self, blocks: Blocks) -> None:
        """What stands above the first Host of an included file is for whom the Include is for."""
        for block in blocks:
            if not self._is_for(block):
                continue
            for item in block.items:
                if isinstance(item, Include):
                    self.through(item.files)
                else:
                    self._take(item)

    def _is_for(self, block: Block) -> bool:
        if isinstance(block.selector, HostPatterns):
            return block.selector.fits(self._host)
        return block.selector is None or self._matches(block.selector)

    def _take(self, setting: ConfigOption) -> None:
        keyword, values = setting.keyword, setting.values
        before = self._found.get(keyword)
        if keyword == "proxyjump":
            self._take_jump(values)
        elif before is None:
            self._found[keyword] = values
        elif FOLLOWED[keyword].adds:
            self._found[keyword] = tuple(dict.fromkeys(before + values))

    def _take_jump(self, values: tuple[str, ...]) -> None:
        """ProxyJump and ProxyCommand: whichever comes first."""
        if "proxyjump" in self._found or ("proxycommand" in self._found and hops(values[0])):
            return
        self._found["proxyjump"] = values
        if hops(values[0]):
            self._found["proxycommand"] = ("none",)

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
        host = _one(self._found, "hostname") or self._host
        if not self._final:
            host = tokens(host, {"h": self._host}, environment=False)
        user = _one(self._found, "user") or _own_name()
        if attribute == "exec":
            port = int(_one(self._found, "port") or SSH_PORT)
            known = _tokens(host, self._name, port, user, _one(self._found, "hostkeyalias") or host)
            try:
                return match_exec.fulfilled(tokens(argument, known, environment=False))
            except WordError as error:
                raise SshConfigError(f"ssh_config {where}: {error}") from error
        if attribute in ("host", "originalhost"):
            name = host if attribute == "host" else self._name
            return listed(name.lower(), argument.lower().split(","))
        if attribute in ("user", "localuser"):
            return listed(user if attribute == "user" else _own_name(), argument.split(","))
        return attribute == "all" or self._final


def _one(found: Mapping[str, tuple[str, ...]], keyword: str, default: str = "") -> str:
    return next(iter(found.get(keyword, ())), default)


def _own_name() -> str:
    """Who runs this process. Raises SshConfigError for a user without a name, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise SshConfigError(
            f"the local user, uid {os.getuid()}, has no name to log in with; name one: USER@HOST"
        ) from error


def _tokens(host: str, name: str, port: int, user: str, alias: str | None) -> dict[str, str]:
    here = socket.gethostname()
    hashed = hashlib.sha1(f"{here}{host}{port}{user}".encode(), usedforsecurity=False)
    return {
        "C": hashed.hexdigest(),
        "L": here.partition(".")[0],
        "d": home("~"),
        "h": host,
        "i": str(os.getuid()),
        "k": alias or name,
        "l": here,
        "n": name,
        "p": str(port),
        "r": user,
        "u": _own_name(),
    }


def _canonical(host: str, found: Mapping[str, tuple[str, ...]]) -> str:
    """The full name if that is asked for, an address in its usual form. Raises SshConfigError."""
    wanted_family = _one(found, "addressfamily", "any")
    for family in (socket.AF_INET, socket.AF_INET6):
        if (address := _address(host, family)) is not None:
            return address if FAMILIES[wanted_family] in (family, socket.AF_UNSPEC) else host
    host = host.lower()
    canonical = _one(found, "canonicalizehostname")
    direct = _one(found, "proxycommand", "none").lower() == "none"
    direct = direct and not hops(_one(found, "proxyjump", "none"))
    if canonical == "no" or (canonical == "yes" and not direct):
        return host
    if _one(found, "canonicalizepermittedcnames", "none").lower() != "none":
        raise SshConfigError("ssh_config: CanonicalizePermittedCNAMEs is not supported")
    if host.endswith("."):
        candidates = [host]
    elif host.count(".") > int(_one(found, "canonicalizemaxdots")):
        return host
    else:
        domains = [each for each in found.get("canonicaldomains", ()) if each.lower() != "none"]
        candidates = [f"{host}.{domain}." for domain in domains]
    for candidate in candidates:
        with suppress(socket.gaierror, UnicodeError):
            socket.getaddrinfo(candidate, None, FAMILIES[wanted_family], socket.SOCK_STREAM)
            return candidate.removesuffix(".")
    if _one(found, "canonicalizefallbacklocal") == "no":
        raise SshConfigError(f"name not found: {host}, in none of CanonicalDomains")
    return host


FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}


def _address(host: str, family: int) -> str | None:
    """An address as getnameinfo(3) writes it; None for what is none of this family."""
    place, percent, zone = host.partition("%")
    with suppress(OSError):
        if family == socket.AF_INET6:
            packed = socket.inet_pton(family, place)
            return socket.inet_ntop(family, packed) + percent + zone
        if host[:1].isdigit() and not any(sign.isspace() for sign in host):
            return socket.inet_ntoa(socket.inet_aton(host))  # 127.1 too
    return None
