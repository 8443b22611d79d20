"""Text that others wrote, made safe to print and kept readable. Pure; imports nothing of ours.

A node may send anything: escape sequences that repaint the terminal, newlines that forge a line
of a report, bidi marks that swap what is read, surrogates that no file can hold. Each of them
shows as a visible escape.
"""

import unicodedata

ELLIPSIS = "…"
LONGEST = 80  # columns of foreign text that a message repeats
LINE_BYTES = 4096  # of what a program said, in which its last line is looked for


def plain(text: str) -> str:
    """One printable line: what cannot be seen, or changes what is seen, is escaped.

    >>> plain("H100\\x1b[2K\\n")
    'H100\\\\x1b[2K\\\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _visible(c) for c in text)


def block(text: str) -> str:
    """As `plain`, with its lines kept apart."""
    return "\n".join(map(plain, text.split("\n")))


def brief(text: object, limit: int = LONGEST) -> str:
    """`plain` and `cut` in one, at a cost that does not grow with a text of megabytes."""
    return cut(plain(str(text)[: limit + 1]), limit)


def sentence(text: str) -> str:
    """Words that may be many, each of them bounded and printable."""
    return " ".join(brief(word) for word in text.split())


def last_line(data: bytes, limit: int = 200) -> str:
    """The last line that is not blank of what a program said, at most `limit` columns of it."""
    lines = data[-LINE_BYTES:].decode("utf-8", "backslashreplace").split("\n")
    return brief(next((line.strip() for line in reversed(lines) if line.strip()), ""), limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` columns of `text`; what was cut shows as …"""
    if cells(text) <= limit:
        return text
    kept, used = [], 1
    for character in text:
        used += _cells(character)
        if used > limit:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def cells(text: str) -> int:
    """How many terminal columns `text` takes; wide characters take two, accents none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _visible(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
