"""A diff with remarks as a terminal shows it: in colour, and wrapped at its width. Pure.

A line's beginning tells its kind: `# ` a heading, `## ` a remark, `-` and `+` the present and the
future line, `$ ` a command. Nothing is cut; a line that is too long continues after `MORE`, with
which no other line begins, so text of a file cannot pass for a line of nodevet.
"""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import cells
from nodevet.sheet.text import BOLD, DIM, GREEN, MORE, NARROWEST, RED, TONES, break_line, sgr, wrap

Loud = Sequence[tuple[str, str]]
"""Words to highlight in remarks, each with its tone."""


def rows(text: str, loud: Loud, *, colour: bool, width: int | None) -> Iterator[str]:
    """The rows of a text of printable lines."""
    for line in text.split("\n"):
        tint = _tint(line)
        for row in _wrap(line, width):
            yield paint(row, loud, tint) if colour and row else row


def _wrap(line: str, width: int | None) -> Iterator[str]:
    if width is None or cells(line) <= width or not line.startswith("#"):
        yield from break_line(line, width)
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


def paint(row: str, loud: Loud, tint: str = "") -> str:
    """A row in its colour; the first of the `loud` words has its own colour."""
    words = () if row.startswith(("+", "-", "$", MORE)) else loud
    for word, tone in words:
        before, match, after = row.partition(word)
        if match:
            return _sgr(before, tint) + _sgr(word, TONES[tone]) + _sgr(after, tint)
    return _sgr(row, tint)


def _sgr(text: str, code: str) -> str:
    return sgr(text, code) if text and code else text
