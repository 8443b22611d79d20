"""Which host keys the user trusts: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. Pure.

paramiko's reader stops at the first @cert-authority or @revoked line and forgets
the rest of the file, so it is not used.
"""

import base64
import binascii
import hmac
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache


class Trust(Enum):
    """What is known of a key that a host shows."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    AUTHORITY = "authority"  # unknown itself; a certificate authority should vouch for it


@dataclass(frozen=True)
class Entry:
    """One line: marker, host patterns, key. `where` is file:line."""

    marker: str  # "", "@revoked" or "@cert-authority"
    names: str
    type: str  # ssh-ed25519
    key: str  # base64
    where: str


def parse(text: str, path: str, *, line: int = 1) -> list[Entry]:
    """The entries of one file, from line `line` on. Lines that ssh would skip are skipped."""
    entries = []
    for number, line_text in enumerate(text.split("\n"), line):
        words = line_text.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) >= 3 and not words[0].startswith("#"):
            entries.append(Entry(marker, words[0], words[1], words[2], f"{path}:{number}"))
    return entries


@dataclass(frozen=True)
class Judgement:
    trust: Trust
    where: str = ""  # file:line of the entry that decided
    types: tuple[str, ...] = ()  # the key types that are known, when this one is not


class KnownHosts:
    """Entries, found by name without reading every one of them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._exact: dict[str, list[Entry]] = defaultdict(list)
        self._hashed: list[tuple[bytes, bytes, Entry]] = []
        self._patterns: list[Entry] = []
        self.add(entries)

    def add(self, entries: Iterable[Entry]) -> None:
        """More entries, which come after those that are there."""
        for entry in entries:
            if entry.names.startswith("|1|"):
                self._hashed.extend(_hashed(entry))
            elif any(sign in entry.names for sign in "*?!"):
                self._patterns.append(entry)
            else:
                for name in entry.names.lower().split(","):
                    self._exact[name].append(entry)

    def lookup(self, name: str) -> list[Entry]:
        """Every entry that speaks of this name, in no particular order."""
        name = name.lower()
        found = list(self._exact.get(name, ()))
        found += [entry for entry in self._patterns if matches(name, entry.names)]
        word = name.encode()
        found += [
            entry
            for salt, digest, entry in self._hashed
            if hmac.digest(salt, word, "sha1") == digest
        ]
        return found

    def types(self, names: Sequence[str]) -> tuple[str, ...]:
        """The key types known under these names, without certificate authorities."""
        entries = [entry for name in names for entry in self.lookup(name) if not entry.marker]
        return tuple(dict.fromkeys(entry.type for entry in entries))

    def judge(
        self, names: Sequence[str], portless: Sequence[str], key_type: str, key: str
    ) -> Judgement:
        """What is known of the key that a host shows.

        `names` are the host's own: another key under one of them means that the
        key changed. `portless` may confirm a key and no more: the name without
        its port, under which another sshd may live.
        """
        own = [entry for name in names for entry in self.lookup(name)]
        near = [entry for name in portless for entry in self.lookup(name)]
        same = [entry for entry in own + near if entry.key == key and entry.type == key_type]
        for entry in same:
            if entry.marker == "@revoked":
                return Judgement(Trust.REVOKED, entry.where)
        for entry in same:
            if not entry.marker:
                return Judgement(Trust.KNOWN, entry.where)
        plain = [entry for entry in own if not entry.marker]
        for entry in plain:
            if entry.type == key_type:
                return Judgement(Trust.CHANGED, entry.where)
        if plain:
            types = tuple(dict.fromkeys(entry.type for entry in plain))
            return Judgement(Trust.UNKNOWN, plain[0].where, types)
        for entry in own:
            if entry.marker == "@cert-authority":
                return Judgement(Trust.AUTHORITY, entry.where)
        return Judgement(Trust.UNKNOWN)


def _hashed(entry: Entry) -> Iterable[tuple[bytes, bytes, Entry]]:
    """Salt and digest of a hashed name; nothing where they are not valid base64."""
    for name in entry.names.split(","):
        parts = name.split("|")
        try:
            yield base64.b64decode(parts[2]), base64.b64decode(parts[3]), entry
        except (IndexError, binascii.Error):
            continue


def matches(name: str, patterns: str) -> bool:
    """Whether a comma-separated pattern list speaks of a name.

    >>> matches("gpu7", "gpu*,!gpu7"), matches("gpu8", "gpu*,!gpu7")
    (False, True)
    """
    found = False
    for pattern in patterns.lower().split(","):
        if _pattern(pattern.removeprefix("!")).fullmatch(name):
            if pattern.startswith("!"):
                return False
            found = True
    return found


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    signs = {"*": ".*", "?": "."}
    return re.compile("".join(signs.get(sign) or re.escape(sign) for sign in pattern))


def spell(host: str, port: int) -> str:
    """A host and port as known_hosts names them: `gpu7`, `[gpu7]:2222`."""
    return host if port == 22 else f"[{host}]:{port}"
