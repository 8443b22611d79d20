"""ssh_config(5) files: read once, with what they include, into blocks. Raises SshConfigError.

Written after readconf.c of OpenSSH 9.2: a line that ssh would not take is refused here too.
"""

import glob
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from nodevet.base.files import open_input
from nodevet.fleet.ssh.errors import SshConfigError
from nodevet.fleet.ssh.keywords import ALIASES, FOLLOWED, KNOWN
from nodevet.fleet.ssh.words import BLANKS, WordError, home, listed, next_word, split

DEEPEST = 16  # files that include one another
SYSTEM_FOLDER = "/etc/ssh"
USER_FOLDER = "~/.ssh"
CRITERIA = {"all", "canonical", "final", "exec", "host", "originalhost", "user", "localuser"}
BARE = {"all", "canonical", "final"}  # criteria without an argument


@dataclass(frozen=True)
class ConfigOption:
    """One option of which we know what to do with it."""

    keyword: str
    values: tuple[str, ...]
    where: str  # file: line 3


@dataclass(frozen=True)
class HostPatterns:
    """`Host`: the patterns."""

    names: frozenset[str]  # those that are plain names
    patterns: tuple[str, ...]  # all, in their order, if one is more than that

    def fits(self, host: str) -> bool:
        return listed(host, self.patterns) if self.patterns else host in self.names


@dataclass(frozen=True)
class Criterion:
    attribute: str
    argument: str
    negated: bool


@dataclass(frozen=True)
class Match:
    """`Match`: all of its criteria; `all` ends them."""

    criteria: tuple[Criterion, ...]
    where: str

    @property
    def final(self) -> bool:
        return any(each.attribute == "final" for each in self.criteria)


@dataclass(frozen=True)
class Include:
    """What `Include` named, file by file."""

    files: tuple[tuple["Block", ...], ...]


@dataclass(frozen=True)
class Block:
    """A `Host` or `Match` and what stands below it; None: the lines above the first of them."""

    selector: HostPatterns | Match | None
    items: tuple[ConfigOption | Include, ...]


Blocks: TypeAlias = tuple[Block, ...]


def read(path: Path, *, user: bool, checked: bool, ignored: str = "") -> tuple[Blocks, str]:
    """A file, and the patterns of IgnoreUnknown up to its end, to those before it.

    `user`: it is the user's own; `checked`: no other user may be able to write to it.
    """
    reader = _ConfigReader(ignored, user=user)
    return reader.file(path, 0, checked=checked), reader.ignored


def wants_final(blocks: Blocks) -> bool:
    """Whether some `Match final` asks to go through the files twice."""
    return any(
        (isinstance(block.selector, Match) and block.selector.final)
        or any(
            wants_final(file)
            for item in block.items
            if isinstance(item, Include)
            for file in item.files
        )
        for block in blocks
    )


class _ConfigReader:
    """`ignored` grows with each IgnoreUnknown, whomever the line is for: ssh refuses more."""

    def __init__(self, ignored: str, *, user: bool) -> None:
        self.ignored = ignored
        self._user = user

    def file(self, path: Path, depth: int, *, checked: bool) -> Blocks:
        if depth > DEEPEST:
            raise SshConfigError(f"ssh_config {path}: Include nests more than {DEEPEST} files deep")
        try:
            with open_input(path) as file:
                if checked and not _safe(os.fstat(file.fileno())):
                    raise SshConfigError(
                        f"ssh_config {path}: other users may write to it (see chmod)"
                    )
                lines = file.read().decode().split("\n")
        except OSError as error:
            raise SshConfigError(f"ssh_config {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SshConfigError(f"ssh_config {path}: not UTF-8 text") from error
        blocks = [Block(None, ())]
        for number, line in enumerate(lines, 1):
            where = f"{path}: line {number}"
            try:
                for item in self._line(line, depth, where):
                    if isinstance(item, (HostPatterns, Match)):
                        blocks.append(Block(item, ()))
                        continue
                    blocks[-1] = replace(blocks[-1], items=(*blocks[-1].items, item))
            except WordError as error:
                raise SshConfigError(f"ssh_config {where}: {error}") from error
        return tuple(blocks)

    def _line(
        self, line: str, depth: int, where: str
    ) -> Iterator[HostPatterns | Match | Include | ConfigOption]:
        """What one line says, if anything. Raises WordError."""
        line = line[:1] + line[1:].rstrip(BLANKS + "\f")
        keyword, rest = next_word(line)
        if keyword == "":
            keyword, rest = next_word(rest)
        if not keyword or keyword.startswith("#"):
            return
        keyword = ALIASES.get(keyword.lower(), keyword.lower())
        rest = (rest or "").lstrip(BLANKS)
        if not rest:
            raise WordError(f"no argument after {keyword}")
        words = split(rest)
        if keyword == "host":
            yield _hosts(words)
        elif keyword == "match":
            yield Match(_criteria(rest), where)
        elif keyword == "include":
            yield Include(tuple(self._included(words, depth)))
        elif keyword == "ignoreunknown":
            self.ignored += "," + ",".join(words)
        elif keyword in FOLLOWED:
            yield ConfigOption(keyword, FOLLOWED[keyword].read(words, rest), where)
        elif keyword not in KNOWN and not listed(keyword, self.ignored.lower().split(",")):
            why = f"{keyword} is not known to nodevet; IgnoreUnknown {keyword} leaves it out"
            raise WordError(why)

    def _included(self, words: tuple[str, ...], depth: int) -> Iterator[Blocks]:
        for word in words:
            if not word or (word.startswith("~") and not self._user):
                raise WordError(f"bad path after include: {word!r}")
            if "\\" in word:
                raise WordError(f"a path with a backslash is not supported: {word}")
            folder = USER_FOLDER if self._user else SYSTEM_FOLDER
            pattern = home(word if word[0] in "/~" else f"{folder}/{word}")
            for name in sorted(glob.glob(pattern)):  # noqa: PTH207  # as glob(3), of any path
                path = Path(name)
                if path.is_file() or (path.exists() and not path.is_dir()):
                    yield self.file(path, depth + 1, checked=True)


def _hosts(words: tuple[str, ...]) -> HostPatterns:
    if not all(words):
        raise WordError("host has an empty argument")
    plain = not any(sign in word for word in words for sign in "*?!")
    return HostPatterns(frozenset(words), () if plain else words)


def _criteria(rest: str) -> tuple[Criterion, ...]:
    """The criteria of a Match line, which has quoting rules of its own."""
    found: list[Criterion] = []
    text: str | None = rest
    while True:
        word, text = next_word(text)
        if not word or word.startswith("#"):
            break
        attribute, argument = word.removeprefix("!").lower(), ""
        if attribute not in CRITERIA:
            raise WordError(f"Match {attribute} is not supported")
        if attribute not in BARE:
            value, text = next_word(text)
            if not value or value.startswith("#"):
                raise WordError(f"Match {attribute} needs an argument")
            argument = value
        found.append(Criterion(attribute, argument, word.startswith("!")))
        if attribute == "all":
            more, _ = next_word(text)
            if len(found) > 2 or (more and not more.startswith("#")):
                raise WordError("Match all stands with nothing after it, and at most one before")
            break
    if not found:
        raise WordError("Match needs a criterion")
    return tuple(found)


def _safe(status: os.stat_result) -> bool:
    """Whether only this user and root may write to a file.

    As Debian's ssh has it: a group of this user alone is not others.
    """
    mine = os.getuid()
    if status.st_uid not in (0, mine) or status.st_mode & stat.S_IWOTH:
        return False
    if not status.st_mode & stat.S_IWGRP:
        return True
    try:
        group = grp.getgrgid(status.st_gid)
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return False
    primary = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group.gr_gid}
    return primary <= {mine} and set(group.gr_mem) <= {owner} and bool(primary or group.gr_mem)
