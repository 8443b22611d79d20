"""Parse ssh_config(5) files, with their includes, into blocks. Raises SshConfigError.

Follows readconf.c of OpenSSH 9.2: nodevet refuses a line that ssh would refuse.
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
from nodevet.fleet.ssh.words import BLANKS, WordError, home, is_listed, next_word, split

DEEPEST = 16  # nested includes
SYSTEM_FOLDER = "/etc/ssh"
USER_FOLDER = "~/.ssh"
CRITERIA = {"all", "canonical", "final", "exec", "host", "originalhost", "user", "localuser"}
BARE = {"all", "canonical", "final"}  # criteria without an argument


@dataclass(frozen=True)
class ConfigOption:
    """One option in FOLLOWED."""

    keyword: str
    values: tuple[str, ...]
    where: str  # file: line 3


@dataclass(frozen=True)
class HostPatterns:
    """The patterns of a `Host` line."""

    names: frozenset[str]  # the plain names
    patterns: tuple[str, ...]  # all in order, if any of them is not a plain name

    def fits(self, host: str) -> bool:
        return is_listed(host, self.patterns) if self.patterns else host in self.names


@dataclass(frozen=True)
class Criterion:
    attribute: str
    argument: str
    negated: bool


@dataclass(frozen=True)
class Match:
    """The criteria of a `Match` line; `all` is the last."""

    criteria: tuple[Criterion, ...]
    where: str

    @property
    def final(self) -> bool:
        return any(criterion.attribute == "final" for criterion in self.criteria)


@dataclass(frozen=True)
class Include:
    """The files of an `Include` line."""

    files: tuple[tuple["Block", ...], ...]


@dataclass(frozen=True)
class Block:
    """A `Host` or `Match` line and the lines below it; None: the lines above the first of them."""

    selector: HostPatterns | Match | None
    items: tuple[ConfigOption | Include, ...]


Blocks: TypeAlias = tuple[Block, ...]


def read(path: Path, *, user: bool, checked: bool, ignored: str = "") -> tuple[Blocks, str]:
    """The blocks of a file, and the patterns of IgnoreUnknown so far, with those in `ignored`.

    `user`: it is the user's own; `checked`: refuse it if other users may write to it.
    """
    reader = _ConfigReader(ignored, user=user)
    return reader.file(path, 0, checked=checked), reader.ignored


def wants_final(blocks: Blocks) -> bool:
    """Whether a `Match final` asks for a second pass over the files."""
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
    """`ignored` grows with each IgnoreUnknown, whichever host it is for: ssh refuses more."""

    def __init__(self, ignored: str, *, user: bool) -> None:
        self.ignored = ignored
        self._user = user

    def file(self, path: Path, depth: int, *, checked: bool) -> Blocks:
        if depth > DEEPEST:
            raise SshConfigError(f"ssh_config {path}: Include nests more than {DEEPEST} files deep")
        try:
            with open_input(path) as file:
                if checked and not _is_safe(os.fstat(file.fileno())):
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
        """The item of one line, if any. Raises WordError."""
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
        elif keyword not in KNOWN and not is_listed(keyword, self.ignored.lower().split(",")):
            why = f"{keyword} is not known to nodevet; IgnoreUnknown {keyword} skips it"
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
    """The criteria of a Match line, with its own quoting rules."""
    criteria: list[Criterion] = []
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
        criteria.append(Criterion(attribute, argument, word.startswith("!")))
        if attribute == "all":
            following, _ = next_word(text)
            if len(criteria) > 2 or (following and not following.startswith("#")):
                raise WordError(
                    "Match all takes nothing after it, and at most one criterion before"
                )
            break
    if not criteria:
        raise WordError("Match needs a criterion")
    return tuple(criteria)


def _is_safe(status: os.stat_result) -> bool:
    """Whether only this user and root may write to a file.

    As in Debian's ssh, a group of this user alone may write to it, too.
    """
    user_id = os.getuid()
    if status.st_uid not in (0, user_id) or status.st_mode & stat.S_IWOTH:
        return False
    if not status.st_mode & stat.S_IWGRP:
        return True
    try:
        group = grp.getgrgid(status.st_gid)
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return False
    primary = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group.gr_gid}
    return primary <= {user_id} and set(group.gr_mem) <= {owner} and bool(primary or group.gr_mem)
