"""Words of ssh_config(5) as OpenSSH reads them: quotes, patterns, %tokens, ~ and ${VAR}. Pure.

Written after strdelim, argv_split, percent_dollar_expand, tilde_expand (misc.c) and match.c of
OpenSSH 9.2; a test compares them with `ssh -G`.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

BLANKS = " \t\r\n"
_STOP = re.compile(r'[ \t\r\n"=]')
_VARIABLE = re.compile(r"\$\{([^}]*)(\}?)")


class WordError(ValueError):
    """What ssh refuses too; the message says why."""


def next_word(text: str | None) -> tuple[str | None, str | None]:
    """The first word and what follows it: blanks or one `=` part them, "..." is one word.

    No word if a quote is not closed.

    >>> next_word('Host=a b'), next_word('"a b" c')
    (('Host', 'a b'), ('a b', 'c'))
    """
    if text is None:
        return None, None
    found = _STOP.search(text)
    if found is None:
        return text, None
    at = found.start()
    if text[at] == '"':
        text = text[:at] + text[at + 1 :]
        end = text.find('"', at)
        if end < 0:
            return None, None
        return text[:end], text[end + 1 :].lstrip(BLANKS)
    rest = text[at + 1 :].lstrip(BLANKS)
    if rest.startswith("=") and text[at] != "=":
        rest = rest[1:].lstrip(BLANKS)
    return text[:at], rest


def split(text: str) -> tuple[str, ...]:
    """The arguments of a line, up to a comment. Raises WordError for a quote that is not closed.

    >>> split("a 'b c' d\\\\ e # f")
    ('a', 'b c', 'd e')
    """
    words: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in " \t":
            at += 1
            continue
        if text[at] == "#":
            break
        word, at = _argument(text, at)
        words.append(word)
    return tuple(words)


def _argument(text: str, at: int) -> tuple[str, int]:
    """One argument, and where it ends."""
    word, quote = "", ""
    while at < len(text):
        sign, following = text[at], text[at + 1 : at + 2]
        if sign == "\\" and (following in ("'", '"', "\\") or (following == " " and not quote)):
            at += 1
            word += following
        elif not quote and sign in " \t":
            return word, at
        elif not quote and sign in "'\"":
            quote = sign
        elif quote and sign == quote:
            quote = ""
        else:
            word += sign
        at += 1
    if quote:
        raise WordError("invalid quotes")
    return word, at


def like(text: str, pattern: str) -> bool:
    """Whether a pattern with `*` and `?` fits; what case it has counts."""
    return _compiled(pattern).fullmatch(text) is not None


def listed(text: str, patterns: Iterable[str]) -> bool:
    """Whether a list of patterns names a text; one that a pattern with `!` fits is not named.

    >>> listed("gpu7", ("gpu*", "!gpu7")), listed("gpu8", ("gpu*", "!gpu7"))
    (False, True)
    """
    found = False
    for each in patterns:
        if like(text, each.removeprefix("!")):
            if each.startswith("!"):
                return False
            found = True
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    signs = {"*": ".*", "?": "."}
    return re.compile(
        "".join(signs.get(sign) or re.escape(sign) for sign in re.sub(r"\*+", "*", pattern)),
        re.DOTALL,
    )


def variables(text: str) -> str:
    """With every ${VAR} replaced. Raises WordError for one that is not set."""

    def value(found: re.Match[str]) -> str:
        if not found[2] or not found[1]:
            raise WordError(f"{text}: ${{ without a name or its }}")
        if found[1] not in os.environ:
            raise WordError(f"{text}: ${{{found[1]}}} is not set")
        return os.environ[found[1]]

    return _VARIABLE.sub(value, text)


def tokens(text: str, known: Mapping[str, str], *, environment: bool = True) -> str:
    """With every %token, and every ${VAR}, replaced once. Raises WordError for an unknown one."""

    def value(found: re.Match[str]) -> str:
        if found[0].startswith("$"):
            return variables(found[0])
        sign = found[0][1:]
        if sign == "%":
            return "%"
        if sign not in known:
            raise WordError(f"{text}: %{sign} is not known here")
        return known[sign]

    return re.sub(r"%.?|\$\{[^}]*\}?" if environment else r"%.?", value, text, flags=re.DOTALL)


def home(text: str) -> str:
    """With a leading ~ or ~user replaced. Raises WordError for an unknown user.

    ssh asks the password database for the user's own; we obey $HOME, as all else here does.
    """
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError as error:
        own = text == "~" or text.startswith("~/")
        why = "this user has no home folder: set HOME" if own else "no such user"
        raise WordError(f"{text}: {why}") from error
