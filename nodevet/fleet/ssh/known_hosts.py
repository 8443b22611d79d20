"""Which host keys the user trusts: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. Pure.

paramiko's reader stops at the first @cert-authority or @revoked line and forgets
the rest of the file, so it is not used.
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

from nodevet.fleet.ssh.words import listed


class Trust(Enum):
    """What is known of a key that a host shows."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    AUTHORITY = "authority"  # unknown itself; a certificate authority should vouch for it


class KnownHostsEntry(NamedTuple):
    """One line: marker, host patterns, key."""

    marker: str  # "", "@revoked" or "@cert-authority"
    names: str
    type: str  # ssh-ed25519
    key: str  # base64
    path: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


def parse(text: str, path: str, *, line: int = 1) -> list[KnownHostsEntry]:
    """The entries of one file, from line `line` on. Lines that ssh would skip are skipped."""
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
    types: tuple[str, ...] = ()  # the key types that are known, when this one is not


class KnownHosts:
    """Entries, found without reading every one of them: by name, and hashed names by key.

    A hashed name can only be found by hashing: each line has a salt of its own. So whether a key
    is known is asked of the lines with that key alone; all of them are gone through only for a
    name whose key is not known, and once.
    """

    def __init__(self, entries: Iterable[KnownHostsEntry]) -> None:
        self._exact: dict[str, list[KnownHostsEntry]] = defaultdict(list)
        self._patterns: list[KnownHostsEntry] = []
        self._hashed: list[KnownHostsEntry] = []
        self._hashed_by_key: dict[str, list[KnownHostsEntry]] = defaultdict(list)
        self._hashed_types: dict[str, None] = {}
        self._hashes: list[_Hash] = []  # of the first entries of _hashed
        self._opened = 0  # how many of them
        self._found: dict[str, tuple[int, list[KnownHostsEntry]]] = {}  # in so many of _hashes
        self.add(entries)

    def add(self, entries: Iterable[KnownHostsEntry]) -> None:
        """More entries, which come after those that are there."""
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
        """Every entry that speaks of this name, in no particular order."""
        name = name.lower()
        for entry in self._hashed[self._opened :]:
            self._hashes += _hashes(entry)
        self._opened = len(self._hashed)
        seen, found = self._found.get(name, (0, []))
        found = found + list(_matching(name, self._hashes[seen:]))
        self._found[name] = len(self._hashes), found
        return self._plain(name) + found

    def types(self, names: Sequence[str]) -> tuple[str, ...]:
        """The key types known under these names, without certificate authorities.

        If nothing is known but hashed names that were not gone through: the types among these.
        """
        entries = [entry for name in names for entry in self._plain(name.lower())]
        entries += [entry for name in names for entry in self._found.get(name.lower(), (0, []))[1]]
        found = dict.fromkeys(entry.type for entry in entries if not entry.marker)
        return tuple(found or self._hashed_types)

    def judge(
        self, names: Sequence[str], portless: Sequence[str], key_type: str, key: str
    ) -> Judgement:
        """What is known of the key that a host shows.

        `names` are the host's own: another key under one of them means that the
        key changed. `portless` may confirm a key and no more: the name without
        its port, under which another sshd may live.
        """
        same = [
            entry
            for name in (*names, *portless)
            for entry in self._with_key(name.lower(), key)
            if entry.type == key_type
        ]
        for entry in same:
            if entry.marker == "@revoked":
                return Judgement(Trust.REVOKED, entry.where)
        for entry in same:
            if not entry.marker:
                return Judgement(Trust.KNOWN, entry.where)
        own = [entry for name in names for entry in self.lookup(name)]
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

    def _plain(self, name: str) -> list[KnownHostsEntry]:
        """The entries that name a host in clear, or by a pattern."""
        found = list(self._exact.get(name, ()))
        return found + [
            entry for entry in self._patterns if listed(name, entry.names.lower().split(","))
        ]

    def _with_key(self, name: str, key: str) -> Iterator[KnownHostsEntry]:
        """The entries that speak of this name and have this key."""
        yield from (entry for entry in self._plain(name) if entry.key == key)
        same = self._hashed_by_key.get(key, ())
        yield from _matching(name, [one for entry in same for one in _hashes(entry)])


class _Hash(NamedTuple):
    """A hashed name, HMAC-SHA1: the salt as the two blocks that SHA-1 begins with."""

    inner: bytes
    outer: bytes
    digest: bytes
    entry: KnownHostsEntry


_INNER = bytes(sign ^ 0x36 for sign in range(256))
_OUTER = bytes(sign ^ 0x5C for sign in range(256))
_SALT = hashlib.sha1(usedforsecurity=False).digest_size  # sshd(8) has salts of no other size


def _hashes(entry: KnownHostsEntry) -> Iterator[_Hash]:
    """The hashed name of an entry; nothing if it is none that ssh would take."""
    try:
        salt, digest = map(base64.b64decode, entry.names.split("|")[2:])
    except ValueError:  # of another number of parts, or no base64
        return
    if len(salt) == _SALT:
        block = salt.ljust(64, b"\0")
        yield _Hash(block.translate(_INNER), block.translate(_OUTER), digest, entry)


def _matching(name: str, hashes: Iterable[_Hash]) -> Iterator[KnownHostsEntry]:
    """The entries of which this is the name. hmac.digest takes twice the time."""
    word, sha1 = name.encode(), hashlib.sha1
    for inner, outer, digest, entry in hashes:
        if sha1(outer + sha1(inner + word).digest()).digest() == digest:
            yield entry


def hashed(name: str) -> str:
    """A name as `ssh-keygen -H` writes it, with a new salt."""
    salt = os.urandom(_SALT)
    digest = hmac.digest(salt, name.lower().encode(), "sha1")
    return "|".join(("", "1", *(base64.b64encode(part).decode() for part in (salt, digest))))


def spell(host: str, port: int) -> str:
    """A host and port as known_hosts names them: `gpu7`, `[gpu7]:2222`."""
    return host if port == 22 else f"[{host}]:{port}"
