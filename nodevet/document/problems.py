"""What is wrong with a file, as one line that says where, what, and what to do next."""

from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from nodevet.printable import LONGEST, brief


class Place(msgspec.Struct, frozen=True):
    """A position in a file, both counted from 1; line 0 is the file as a whole."""

    line: int = 0
    column: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to put right. `str()` is the line that people read."""

    file: str
    line: int = 0
    column: int = 0
    path: str = ""  # expect.pcie_link.width
    message: str
    advice: str = ""
    warning: bool = False

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        parts = [where, "warning" if self.warning else "", self.path, self.message]
        text = ": ".join(part for part in parts if part)
        return f"{text}; {self.advice}" if self.advice else text


def quoted(value: object) -> str:
    """A value as a message repeats it: bounded, and without characters that act on a terminal."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = brief(str(value))
    return f'"{text}"' if isinstance(value, str) else text


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean width?`, or `otherwise` where nothing is near."""
    names = {name.casefold(): name for name in known}
    near = get_close_matches(word[:LONGEST].casefold(), names, 1)
    return f"did you mean {names[near[0]]}?" if near else otherwise


def either(words: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *head, last = words
    return f"{', '.join(head)} or {last}" if head else last
