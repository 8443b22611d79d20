"""Lines of files with a mark below one column, as wide as the terminal. Pure."""

from collections.abc import Iterator

from nodevet.base.printable import ELLIPSIS, cells, plain
from nodevet.sheet.model import Excerpt
from nodevet.sheet.text import BOLD, DIM, RED, YELLOW, sgr

WIDEST = 160  # columns of a line if the width is not known
GUTTER = 8  # columns of the line number and the bar


def lines(excerpt: Excerpt, *, colour: bool = False, width: int | None = None) -> Iterator[str]:
    """The message, and below it the line of the file with a caret."""
    yield _headline(excerpt) if colour else sentence(excerpt)
    yield from marked_line(excerpt, colour=colour, width=width)


def sentence(excerpt: Excerpt) -> str:
    """`site.yaml:4:9: warning: expect.a: must be b; write c`."""
    head = ": ".join(filter(None, (excerpt.place, excerpt.mark, excerpt.text)))
    return f"{head}; {excerpt.note}" if excerpt.note else head


def _headline(excerpt: Excerpt) -> str:
    mark = sgr(excerpt.mark, YELLOW) if excerpt.mark else ""
    head = ": ".join(filter(None, (sgr(excerpt.place, BOLD), mark, excerpt.text)))
    return head + (sgr(f"; {excerpt.note}", DIM) if excerpt.note else "")


def marked_line(
    excerpt: Excerpt, *, colour: bool = False, width: int | None = None
) -> Iterator[str]:
    """The line, cut around the column if it is long, and the caret below it; nothing if the line
    is not known."""
    if excerpt.line is None or not excerpt.number:
        return
    room = max(20, (width or WIDEST) - GUTTER)
    view, column = window(excerpt.line, excerpt.column, room)
    heads = (f"{excerpt.number:>5} | ", "      | ")
    caret, tint = "^", YELLOW if excerpt.mark else RED
    if colour:
        heads, caret = (sgr(heads[0], DIM), sgr(heads[1], DIM)), sgr(caret, tint)
    yield heads[0] + view
    yield f"{heads[1]}{' ' * column}{caret}"


def window(line: str, column: int, room: int) -> tuple[str, int]:
    """At most `room` columns of a line, printable, with character number `column` (from 1) in view;
    and the number of columns before that character.

    >>> window("a: b", 4, 20)
    ('a: b', 3)
    """
    at = max(0, min(column - 1, len(line)))
    first = max(0, at - room)  # no character before it can be in view
    pieces = [plain(character) for character in line[first : at + room]]
    start = end = at - first
    space, growing = room - 2, True  # without a mark at each end
    while growing:
        growing = False
        if end < len(pieces) and cells(pieces[end]) <= space:
            space, end, growing = space - cells(pieces[end]), end + 1, True
        if start and cells(pieces[start - 1]) <= space:
            space, start, growing = space - cells(pieces[start - 1]), start - 1, True
    head = (ELLIPSIS if first + start else "") + "".join(pieces[start : at - first])
    tail = "".join(pieces[at - first : end]) + (ELLIPSIS if first + end < len(line) else "")
    return head + tail, cells(head)
