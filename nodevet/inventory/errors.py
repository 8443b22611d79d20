"""What can be wrong with an inventory, and how it is said: where, what, what to do next."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SHOWN = 20
"""Problems printed before the rest is only counted, so that they fit one screen."""


class Place(NamedTuple):
    """A position in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{quote(self.file, limit=4096)}:{self.line}:{self.column}"


class Problem(NamedTuple):
    """One thing to put right."""

    where: object  # its str() says the place: `file:line:column`, a file, a target
    path: str  # inside the file: `groups.h100.port`; empty where there is none
    text: str
    advice: str = ""

    def __str__(self) -> str:
        parts = [str(self.where), self.path, self.text]
        text = ": ".join(part for part in parts if part)
        return f"{text}; {self.advice}" if self.advice else text


class InventoryError(Exception):
    """The inventory cannot be used. `problems` holds every one that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(self.problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"and {len(self.problems) - SHOWN} more problems like these")
        return "\n".join(lines)


def quote(text: object, limit: int = 80) -> str:
    """Foreign text for an error: one line, printable, bounded."""
    shown = str(text)
    shown = "".join(
        char if char.isprintable() else ascii(char)[1:-1] for char in shown[: limit + 1]
    )
    return f"{shown[: limit - 3]}..." if len(shown) > limit else shown


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or nothing when nothing is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known)[:50_000], cutoff=0.7)
    best = max(near, key=lambda found: found[:1] == word[:1], default="")
    return f"did you mean {quote(best)}?" if best else ""


def shorten(names: Sequence[str], limit: int = 5) -> str:
    """Some names for an error, folded into a nodeset."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    plain = [name for name in names if not set(name) & set(":@")]
    if len(plain) == len(names) and names:
        return quote(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP), limit=120)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(quote(name) for name in names[:limit]) + more
