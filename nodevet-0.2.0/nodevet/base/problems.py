"""Problems of what a person wrote: one line that says where, what, and what to do."""

from collections.abc import Iterable
from itertools import takewhile

import msgspec

from nodevet.base.printable import LONGEST, brief

SHOWN = 20  # problems that are printed; the others are counted: one screen
LONGEST_PATH = 4096  # columns of a file's name
MOST_NAMES = 50_000  # that are compared with a word
CLOSE = 0.6  # least similarity of a suggestion; 1 is the same word


class Place(msgspec.Struct, frozen=True, order=True):
    """A position in a file, both counted from 1; line 0 is the file as a whole."""

    line: int = 0
    column: int = 0
    file: str = ""

    def within(self, file: str) -> "Place":
        return Place(self.line, self.column, file)

    def __str__(self) -> str:
        file = brief(self.file, LONGEST_PATH)
        return f"{file}:{self.line}:{self.column}" if self.line else file


class Problem(msgspec.Struct, frozen=True):
    """One thing to correct. `str()` is the line that people read."""

    where: object  # a Place, a target, an option; shown by its str()
    path: str  # inside the file: expect.pcie_link.width; empty if there is none
    message: str
    advice: str = ""
    warning: bool = False

    @property
    def place(self) -> Place:
        """The position, or the file as a whole."""
        return self.where if isinstance(self.where, Place) else Place(file=str(self.where))

    def __str__(self) -> str:
        parts = [str(self.where), "warning" if self.warning else "", self.path, self.message]
        text = ": ".join(part for part in parts if part)
        return f"{text}; {self.advice}" if self.advice else text


def problems_text(problems: Iterable[Problem]) -> str:
    """The first SHOWN problems, one to a line, and the number of the others."""
    items = tuple(problems)
    rows = [str(problem) for problem in items[:SHOWN]]
    if len(items) > SHOWN:
        rows.append(f"and {len(items) - SHOWN} more problems like these")
    return "\n".join(rows)


def quoted(value: object) -> str:
    """A value of YAML or JSON for a message: bounded and printable."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = brief(value)
    return f'"{text}"' if isinstance(value, str) else text


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean width?`, or `otherwise` if no known word is similar."""
    best = nearest(word, known)
    return f"did you mean {brief(best)}?" if best else otherwise


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most similar to `word`, or ""."""
    from difflib import get_close_matches  # a run without a typo does not pay for it

    names = {name.casefold(): name for name in list(known)[:MOST_NAMES]}
    lowered = word[:LONGEST].casefold()
    near = get_close_matches(lowered, names, cutoff=CLOSE)
    best = max(near, key=lambda name: _shared_prefix(name, lowered), default="")
    return names.get(best, "")


def _shared_prefix(first: str, second: str) -> int:
    """How many characters two words begin with in common."""
    same = (a == b for a, b in zip(first, second, strict=False))
    return sum(takewhile(bool, same))


def or_list(words: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *head, last = words
    return f"{', '.join(head)} or {last}" if head else last
