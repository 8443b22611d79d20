"""Words of ssh_config(5) as OpenSSH reads them: quotes, patterns, %tokens, ~, ${VAR}, hops. Pure.

Follows strdelim, argv_split, percent_dollar_expand, tilde_expand (misc.c) and match.c of OpenSSH
9.2; a test compares them with `ssh -G`.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

BLANKS = " \t\r\n"
_STOP = re.compile(r'[ \t\r\n"=]')
_PLACE = re.compile(r"\[([^\]\s]+)\](?::(\d*))?|([^:/\[\]\s]+)(?:[:/](\d*))?")
_VARIABLE = re.compile(r"\$\{([^}]*)(\}?)")


class WordError(ValueError):
    """Text that ssh refuses, too; the message says why."""


def next_word(text: str | None) -> tuple[str | None, str | None]:
    """The first word and the rest, which blanks or one `=` separate; "..." is one word.

    None if a quote is not closed.

    >>> next_word('Host=a b'), next_word('"a b" c')
    (('Host', 'a b'), ('a b', 'c'))
    """
    if text is None:
        return None, None
    match = _STOP.search(text)
    if match is None:
        return text, None
    at = match.start()
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
    """The arguments of a line, up to a comment. Raises WordError for an unclosed quote.

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
    """One argument and its end."""
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


def is_listed(text: str, patterns: Iterable[str]) -> bool:
    """Whether a list of patterns matches a text; a matching pattern with `!` excludes it.

    >>> listed("gpu7", ("gpu*", "!gpu7")), listed("gpu8", ("gpu*", "!gpu7"))
    (False, True)
    """
    result = False
    for pattern in patterns:
        if _compiled(pattern.removeprefix("!")).fullmatch(text):
            if pattern.startswith("!"):
                return False
            result = True
    return result


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    signs = {"*": ".*", "?": "."}
    return re.compile(
        "".join(signs.get(sign) or re.escape(sign) for sign in re.sub(r"\*+", "*", pattern)),
        re.DOTALL,
    )


def variables(text: str) -> str:
    """The text with every ${VAR} replaced. Raises WordError for one that is not set."""

    def value(match: re.Match[str]) -> str:
        if not match[2] or not match[1]:
            raise WordError(f"{text}: ${{ without a name or its }}")
        if match[1] not in os.environ:
            raise WordError(f"{text}: ${{{match[1]}}} is not set")
        return os.environ[match[1]]

    return _VARIABLE.sub(value, text)


def tokens(text: str, known: Mapping[str, str], *, environment: bool = True) -> str:
    """The text with every %token and ${VAR} replaced once. Raises WordError for an unknown one."""

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("$"):
            return variables(match[0])
        sign = match[0][1:]
        if sign == "%":
            return "%"
        if sign not in known:
            raise WordError(f"{text}: %{sign} is not known here")
        return known[sign]

    return re.sub(r"%.?|\$\{[^}]*\}?" if environment else r"%.?", value, text, flags=re.DOTALL)


def home(text: str) -> str:
    """The path with a leading ~ or ~user replaced. Raises WordError for an unknown user.

    For the user's own home ssh asks the password database; nodevet obeys $HOME, as everywhere else.
    """
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError as error:
        own = text == "~" or text.startswith("~/")
        why = "this user has no home folder: set HOME" if own else "no such user"
        raise WordError(f"{text}: {why}") from error


class Hop(NamedTuple):
    """One hop of a ProxyJump; ssh_config has the settings that are None."""

    host: str
    user: str | None
    port: int | None


def hops(text: str) -> tuple[Hop, ...]:
    """`[user@]host[:port]` or `ssh://[user@]host[:port]`, separated by commas; `none`: no hops.

    Raises WordError.
    """
    text = text.partition("#")[0].rstrip()
    if text.lower() == "none":
        return ()
    return tuple(_hop(hop) for hop in text.split(","))


def _hop(text: str) -> Hop:
    uri = text.startswith("ssh://")
    user, at, place = text.removeprefix("ssh://").rpartition("@")
    if uri:
        user, place = unquote(user.partition(";")[0]), place.removesuffix("/")
    match = _PLACE.fullmatch(place)
    if match is None or (at and not user):
        raise WordError(f"ProxyJump {text!r} is not [user@]host[:port]")
    host, port = match[1] or match[3], match[2] or match[4]
    if port and not 0 < int(port) < 65536:
        raise WordError(f"ProxyJump {text!r}: port must be 1 to 65535")
    return Hop(host, user or None, int(port) if port else None)
