"""Lines of files with a mark below one column, as wide as a terminal is. Pure."""

from collections.abc import Iterator

from nodevet.base.printable import ELLIPSIS, cells, plain
from nodevet.sheet.colours import BOLD, DIM, RED, YELLOW, sgr
from nodevet.sheet.model import Excerpt

WIDEST = 160  # columns of a line that is shown, if none are said
GUTTER = 8  # columns of the number and the bar before it


def lines(excerpt: Excerpt, *, colour: bool = False, width: int | None = None) -> Iterator[str]:
    """What is said, and below it the line of the file with a caret."""
    yield _headline(excerpt) if colour else sentence(excerpt)
    yield from marked(excerpt, colour=colour, width=width)


def sentence(excerpt: Excerpt) -> str:
    """`site.yaml:4:9: warning: expect.a: must be b; write c`."""
    head = ": ".join(filter(None, (excerpt.place, excerpt.mark, excerpt.text)))
    return f"{head}; {excerpt.note}" if excerpt.note else head


def _headline(excerpt: Excerpt) -> str:
    mark = sgr(excerpt.mark, YELLOW) if excerpt.mark else ""
    head = ": ".join(filter(None, (sgr(excerpt.place, BOLD), mark, excerpt.text)))
    return head + (sgr(f"; {excerpt.note}", DIM) if excerpt.note else "")


def marked(excerpt: Excerpt, *, colour: bool = False, width: int | None = None) -> Iterator[str]:
    """The line, cut around the column if it is long, and the caret below it; nothing if the line is
    not known."""
    if excerpt.line is None or not excerpt.number:
        return
    room = max(20, (width or WIDEST) - GUTTER)
    shown, column = window(excerpt.line, excerpt.column, room)
    heads = (f"{excerpt.number:>5} | ", "      | ")
    caret, tint = "^", YELLOW if excerpt.mark else RED
    if colour:
        heads, caret = (sgr(heads[0], DIM), sgr(heads[1], DIM)), sgr(caret, tint)
    yield heads[0] + shown
    yield f"{heads[1]}{' ' * column}{caret}"


def window(line: str, column: int, room: int) -> tuple[str, int]:
    """At most `room` columns of a line, printable, with its character number `column` (from 1) in
    view; and how many columns stand before that character.

    >>> window("a: b", 4, 20)
    ('a: b', 3)
    """
    at = max(0, min(column - 1, len(line)))
    first = max(0, at - room)  # none of the characters before it can be in view
    pieces = [plain(character) for character in line[first : at + room]]
    start = end = at - first
    left, grown = room - 2, True  # but for a mark at each end
    while grown:
        grown = False
        if end < len(pieces) and cells(pieces[end]) <= left:
            left, end, grown = left - cells(pieces[end]), end + 1, True
        if start and cells(pieces[start - 1]) <= left:
            left, start, grown = left - cells(pieces[start - 1]), start - 1, True
    head = (ELLIPSIS if first + start else "") + "".join(pieces[start : at - first])
    tail = "".join(pieces[at - first : end]) + (ELLIPSIS if first + end < len(line) else "")
    return head + tail, cells(head)
