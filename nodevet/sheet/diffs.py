"""A diff with remarks as a terminal shows it: in colour, and wrapped where it ends. Pure.

A line is what its beginning says: `# ` a heading, `## ` a remark, `+` and `-` what will be and what
is, `$ ` a command. Nothing is cut; the rest of a line that is too long begins with `MORE`, which
begins nothing else: text of a file cannot pass for a line of nodevet's.
"""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import cells
from nodevet.sheet.colours import BOLD, DIM, GREEN, RED, TONES, sgr
from nodevet.sheet.text import MORE, NARROWEST, broken, wrap

Loud = Sequence[tuple[str, str]]
"""Words of remarks that stand out, each with its tone."""


def drawn(text: str, loud: Loud, *, colour: bool, width: int | None) -> Iterator[str]:
    """The rows of printable lines."""
    for line in text.split("\n"):
        tint = _tint(line)
        for row in _wrapped(line, width):
            yield painted(row, loud, tint) if colour and row else row


def _wrapped(line: str, width: int | None) -> Iterator[str]:
    if width is None or cells(line) <= width or not line.startswith("#"):
        yield from broken(line, width)
        return
    mark, _, text = line.partition(" ")
    for row in wrap(text, max(NARROWEST, width - len(mark) - 1)):
        yield f"{mark} {row}"


def _tint(line: str) -> str:
    if line.startswith(("# ", "--- ", "+++ ")):
        return BOLD
    if line.startswith(("## ", "@@")):
        return DIM
    return {"+": GREEN, "-": RED}.get(line[:1], "")


def painted(row: str, loud: Loud, tint: str = "") -> str:
    """A row in its colour; words of a remark that stand out in theirs."""
    words = () if row.startswith(("+", "-", "$", MORE)) else loud
    for word, tone in words:
        before, found, after = row.partition(word)
        if found:
            return _sgr(before, tint) + _sgr(word, TONES[tone]) + _sgr(after, tint)
    return _sgr(row, tint)


def _sgr(text: str, code: str) -> str:
    return sgr(text, code) if text and code else text
