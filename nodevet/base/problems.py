"""What is wrong with something that a person wrote: one line that says where, what, what to do."""

from collections.abc import Iterable
from itertools import takewhile

import msgspec

from nodevet.base.printable import LONGEST, brief

SHOWN = 20  # problems that are printed before the rest is only counted: one screen
LONGEST_PATH = 4096  # columns of a file's name
MOST_NAMES = 50_000  # in which a near one is looked for
CLOSE = 0.6  # of 1, which is the same word


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

    where: object  # its str() says it: a Place, a target, an option
    path: str  # inside the file: expect.pcie_link.width; empty if there is none
    message: str
    advice: str = ""
    warning: bool = False

    @property
    def place(self) -> Place:
        """The position; of what has none, the whole of it."""
        return self.where if isinstance(self.where, Place) else Place(file=str(self.where))

    def __str__(self) -> str:
        parts = [str(self.where), "warning" if self.warning else "", self.path, self.message]
        text = ": ".join(part for part in parts if part)
        return f"{text}; {self.advice}" if self.advice else text


def listed(problems: Iterable[Problem]) -> str:
    """The first `SHOWN` problems, a line each, and how many more there are."""
    told = tuple(problems)
    rows = [str(problem) for problem in told[:SHOWN]]
    if len(told) > SHOWN:
        rows.append(f"and {len(told) - SHOWN} more problems like these")
    return "\n".join(rows)


def quoted(value: object) -> str:
    """A value of YAML or JSON as a message repeats it: bounded and printable."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = brief(value)
    return f'"{text}"' if isinstance(value, str) else text


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean width?`, or `otherwise` if nothing is near."""
    best = nearest(word, known)
    return f"did you mean {brief(best)}?" if best else otherwise


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is nearest to another; empty if none is near."""
    from difflib import get_close_matches  # a run without a slip does not pay for it

    names = {name.casefold(): name for name in list(known)[:MOST_NAMES]}
    said = word[:LONGEST].casefold()
    near = get_close_matches(said, names, cutoff=CLOSE)
    best = max(near, key=lambda found: begins_alike(found, said), default="")
    return names.get(best, "")


def begins_alike(one: str, other: str) -> int:
    """How many characters two words have in common before they differ."""
    same = (a == b for a, b in zip(one, other, strict=False))
    return sum(takewhile(bool, same))


def either(words: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    *head, last = words
    return f"{', '.join(head)} or {last}" if head else last
