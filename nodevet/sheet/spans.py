"""Markdown code spans: where text from a node stands, neither markup nor HTML is live in it."""

import re
from collections.abc import Iterable, Iterator, Sequence

from nodevet.base.printable import plain


def code(text: str) -> str:
    """A code span around any text."""
    shown = plain(text)
    fence = "`" * (longest(shown) + 1)
    room = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{room}{shown}{room}{fence}" if shown.strip() else "` `"


def cell(text: str) -> str:
    """A code span in a table, whose pipes are not the table's."""
    escaped = plain(text).replace("\\|", "\\x5c\\x7c").replace("|", "\\|")
    return code(escaped) if text else ""


def longest(text: str) -> int:
    """The longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)


def table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table of cells, and an empty one."""
    heads = tuple(heads)
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
