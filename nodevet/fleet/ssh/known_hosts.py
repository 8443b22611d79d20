"""The host keys that the user trusts: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. Pure.

paramiko's reader is not used: it stops at the first @cert-authority or @revoked line and ignores
the rest of the file.
"""

import base64
import hashlib
import hmac
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from nodevet.fleet.ssh.words import is_listed


class Trust(Enum):
    """How far a key that a host shows is trusted."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    AUTHORITY = "authority"  # unknown, but known_hosts names a certificate authority for the host


class KnownHostsEntry(NamedTuple):
    """One line: marker, host patterns, key."""

    marker: str  # "", "@revoked" or "@cert-authority"
    names: str
    type: str  # ssh-ed25519
    key: str  # base64
    path: str
    line: int

    @property
    def location(self) -> str:
        return f"{self.path}:{self.line}"


def parse(text: str, path: str, *, line: int = 1) -> list[KnownHostsEntry]:
    """The entries of a text whose first line has number `line`. Skips lines that ssh skips."""
    entries = []
    for number, line_text in enumerate(text.split("\n"), line):
        words = line_text.split(None, 4)
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) >= 3 and not words[0].startswith("#"):
            entries.append(KnownHostsEntry(marker, words[0], words[1], words[2], path, number))
    return entries


@dataclass(frozen=True)
class Judgement:
    trust: Trust
    where: str = ""  # file:line of the entry that decided
    types: tuple[str, ...] = ()  # the known key types, if this one is not known


class KnownHosts:
    """Entries, indexed by name, and those with hashed names by key.

    Each hashed name has its own salt, so a search must hash the name for each line. To judge a key,
    only the lines with that key are searched; all lines are searched only for a name whose key is
    not known, and once.
    """

    def __init__(self, entries: Iterable[KnownHostsEntry]) -> None:
        self._exact: dict[str, list[KnownHostsEntry]] = defaultdict(list)
        self._patterns: list[KnownHostsEntry] = []
        self._hashed: list[KnownHostsEntry] = []
        self._hashed_by_key: dict[str, list[KnownHostsEntry]] = defaultdict(list)
        self._hashed_types: dict[str, None] = {}
        self._hashes: list[_Hash] = []  # of the first entries of _hashed
        self._hashed_count = 0  # of those entries
        self._results: dict[str, tuple[int, list[KnownHostsEntry]]] = {}  # hashes searched, matches
        self.add(entries)

    def add(self, entries: Iterable[KnownHostsEntry]) -> None:
        """Append entries."""
        for entry in entries:
            if entry.names.startswith("|1|"):
                self._hashed.append(entry)
                self._hashed_by_key[entry.key].append(entry)
                if not entry.marker:
                    self._hashed_types[entry.type] = None
            elif any(sign in entry.names for sign in "*?!"):
                self._patterns.append(entry)
            else:
                for name in entry.names.lower().split(","):
                    self._exact[name].append(entry)

    def lookup(self, name: str) -> list[KnownHostsEntry]:
        """Every entry for this name, in no particular order."""
        name = name.lower()
        for entry in self._hashed[self._hashed_count :]:
            self._hashes += _hashes(entry)
        self._hashed_count = len(self._hashed)
        searched, entries = self._results.get(name, (0, []))
        entries = entries + list(_matching_entries(name, self._hashes[searched:]))
        self._results[name] = len(self._hashes), entries
        return self._plain_entries(name) + entries

    def types(self, names: Sequence[str]) -> tuple[str, ...]:
        """The key types known for these names, without certificate authorities.

        If there are only hashed names that were not searched yet: all types among them.
        """
        entries = [entry for name in names for entry in self._plain_entries(name.lower())]
        for name in names:
            entries += self._results.get(name.lower(), (0, []))[1]
        types = dict.fromkeys(entry.type for entry in entries if not entry.marker)
        return tuple(types or self._hashed_types)

    def judge(
        self, names: Sequence[str], portless: Sequence[str], key_type: str, key: str
    ) -> Judgement:
        """The trust in the key that a host shows.

        `names`: the host's own; another key under one of them means that the key changed.
        `portless`: names without the port, which may belong to another sshd, so they can only
        confirm a key.
        """
        same = [
            entry
            for name in (*names, *portless)
            for entry in self._with_key(name.lower(), key)
            if entry.type == key_type
        ]
        for entry in same:
            if entry.marker == "@revoked":
                return Judgement(Trust.REVOKED, entry.location)
        for entry in same:
            if not entry.marker:
                return Judgement(Trust.KNOWN, entry.location)
        own = [entry for name in names for entry in self.lookup(name)]
        plain = [entry for entry in own if not entry.marker]
        for entry in plain:
            if entry.type == key_type:
                return Judgement(Trust.CHANGED, entry.location)
        if plain:
            types = tuple(dict.fromkeys(entry.type for entry in plain))
            return Judgement(Trust.UNKNOWN, plain[0].location, types)
        for entry in own:
            if entry.marker == "@cert-authority":
                return Judgement(Trust.AUTHORITY, entry.location)
        return Judgement(Trust.UNKNOWN)

    def _plain_entries(self, name: str) -> list[KnownHostsEntry]:
        """The entries that name a host in plain text or by a pattern."""
        entries = list(self._exact.get(name, ()))
        return entries + [
            entry for entry in self._patterns if is_listed(name, entry.names.lower().split(","))
        ]

    def _with_key(self, name: str, key: str) -> Iterator[KnownHostsEntry]:
        """The entries for this name with this key."""
        yield from (entry for entry in self._plain_entries(name) if entry.key == key)
        same = self._hashed_by_key.get(key, ())
        yield from _matching_entries(name, [item for entry in same for item in _hashes(entry)])


class _Hash(NamedTuple):
    """A hashed name, HMAC-SHA1, with the salt as the first blocks of both SHA-1 digests."""

    inner: bytes
    outer: bytes
    digest: bytes
    entry: KnownHostsEntry


_INNER = bytes(sign ^ 0x36 for sign in range(256))
_OUTER = bytes(sign ^ 0x5C for sign in range(256))
_SALT = hashlib.sha1(usedforsecurity=False).digest_size  # the only size of salts in sshd(8)


def _hashes(entry: KnownHostsEntry) -> Iterator[_Hash]:
    """The hashed name of an entry; nothing if ssh would not accept it."""
    try:
        salt, digest = map(base64.b64decode, entry.names.split("|")[2:])
    except ValueError:  # another number of parts, or not base64
        return
    if len(salt) == _SALT:
        block = salt.ljust(64, b"\0")
        yield _Hash(block.translate(_INNER), block.translate(_OUTER), digest, entry)


def _matching_entries(name: str, hashes: Iterable[_Hash]) -> Iterator[KnownHostsEntry]:
    """The entries with this name. hmac.digest would take twice the time."""
    word, sha1 = name.encode(), hashlib.sha1
    for inner, outer, digest, entry in hashes:
        if sha1(outer + sha1(inner + word).digest()).digest() == digest:
            yield entry


def hash_name(name: str) -> str:
    """A name as `ssh-keygen -H` writes it, with a new salt."""
    salt = os.urandom(_SALT)
    digest = hmac.digest(salt, name.lower().encode(), "sha1")
    return "|".join(("", "1", *(base64.b64encode(part).decode() for part in (salt, digest))))


def spell(host: str, port: int) -> str:
    """A host and port as written in known_hosts: `gpu7`, `[gpu7]:2222`."""
    return host if port == 22 else f"[{host}]:{port}"
