"""Make text that others wrote safe to print. Pure; imports nothing of ours.

A node may send anything: escape sequences that repaint the terminal, newlines that forge a line
of a report, bidi marks that swap words, surrogates that no file can hold. Each of them shows as a
visible escape.
"""

import re
import unicodedata

ELLIPSIS = "…"
LONGEST = 80  # columns of foreign text that a message repeats
LINE_BYTES = 4096  # of a program's output, which are searched for its last line


INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
"""Characters that Python calls printable and that show nothing: Default_Ignorable_Code_Point of
Unicode's DerivedCoreProperties.txt, and those whose glyph is empty."""
BLANK = "\\x20"
LOOKS_ESCAPED = re.compile(r"\\(?:[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def plain(text: str) -> str:
    """One printable line: characters that are invisible or change what is seen are escaped.

    >>> plain("H100\\x1b[2K\\n")
    'H100\\\\x1b[2K\\\\n'
    """
    if is_visible(text):
        return text
    escaped = (c if is_visible(c) else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)


def is_visible(text: str) -> bool:
    """Whether every character can be seen.

    >>> is_visible("a b"), is_visible("a\\u3164b"), is_visible("a\\tb")
    (True, False, False)
    """
    return text.isprintable() and (text.isascii() or not INVISIBLE.search(text))


def marked(text: str) -> str:
    """Like `plain`, but a note distinguishes text that only looks like an escape, and blanks at
    the end are visible.

    >>> print(marked("a\\tb"), marked("a\\\\tb"), marked("a "), sep="\\n")
    a\\tb
    a\\tb  (no character is escaped)
    a\\x20  (1 character is escaped)
    """
    body = text.rstrip(" ")
    blanks = len(text) - len(body)
    if not blanks and not LOOKS_ESCAPED.search(text):
        return plain(text)
    escaped = blanks + sum(not is_visible(character) for character in body)
    verb = "characters are" if escaped > 1 else "character is"
    return f"{plain(body)}{BLANK * blanks}  ({escaped or 'no'} {verb} escaped)"


def block(text: str) -> str:
    """Like `plain`, line by line."""
    return "\n".join(map(plain, text.split("\n")))


def brief(text: object, limit: int = LONGEST) -> str:
    """`plain` and `cut` in one; its cost does not grow with a text of megabytes."""
    return cut(plain(str(text)[: limit + 1]), limit)


def sentence(text: str) -> str:
    """Any number of words, each bounded and printable."""
    return " ".join(brief(word) for word in text.split())


def last_line(data: bytes, limit: int = 200) -> str:
    """The last line of a program's output that is not blank, at most `limit` columns of it."""
    lines = data[-LINE_BYTES:].decode("utf-8", "backslashreplace").split("\n")
    return brief(next((line.strip() for line in reversed(lines) if line.strip()), ""), limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` columns of `text`; … marks a cut."""
    if cells(text) <= limit:
        return text
    characters, used = [], 1
    for character in text:
        used += _cells(character)
        if used > limit:
            break
        characters.append(character)
    return "".join(characters) + ELLIPSIS


def cells(text: str) -> int:
    """How many terminal columns `text` takes; wide characters take two, accents none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
