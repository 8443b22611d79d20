"""A sheet as Markdown, for a GitHub comment or a ticket. Pure.

Text that others may have written stands in code spans and fenced blocks alone, where neither
markup nor HTML nor an @mention is live. GitHub takes 65,536 characters: what is beyond that is left
out, details first, and counted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch

from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    ChartBlock,
    CodeBlock,
    FactBlock,
    GroupBlock,
    ListBlock,
    Medium,
    Sheet,
    SheetBlock,
    TableBlock,
    TextBlock,
    TimeBlock,
)
from nodevet.sheet.spans import cell, code, longest, table
from nodevet.sheet.terminal import bars

MOST = 65_000  # characters of a document
LEFT_OUT = 100  # characters of the sentence that counts what has no room
LONGEST = 2_000  # characters of one paragraph or item
_WORDS = re.compile(
    r"(?:[A-Za-z0-9 .,;()%/+=–…·≤≥×→?'°-]"
    r"|: "
    r"|(?<=[A-Za-z0-9])_(?=[A-Za-z0-9])"  # within a word
    r"|\[[0-9,-]+\](?![(\[:])"  # of a nodeset
    r")*"
)
"""Text in which nothing can be markup, a link or a mention."""


def render(sheet: Sheet) -> str:
    """The document, in at most MOST characters."""
    text = "\n".join(_head(sheet)) + "\n"
    end = f"{words(sheet.end)}\n" if sheet.end else ""
    room = MOST - len(end) - LEFT_OUT
    blocks = list(_shown(sheet.blocks))
    for place, block in enumerate(blocks):
        made = _fitting(block, room - len(text))
        if made is None:
            text += f"{len(blocks) - place:,} {sheet.more} have no room here.\n\n"
            break
        text += made
    return (text + end).rstrip("\n") + "\n"


def words(text: str) -> str:
    """The text as it is if nothing in it can be markup, else in a code span."""
    return text if _WORDS.fullmatch(text) else code(text)


def _head(sheet: Sheet) -> Iterator[str]:
    yield from (f"# {words(sheet.title)}", "")
    if sheet.facts:
        yield from (" · ".join(map(words, sheet.facts)), "")


def _shown(blocks: Iterable[AnyBlock]) -> Iterator[AnyBlock]:
    return (block for block in blocks if Medium.MARKDOWN in block.media)


def _fitting(block: AnyBlock, room: int) -> str | None:
    """The block; without its details if they have no room; None if that has none either."""
    for brief in (False, True):
        text = "\n".join(_titled(block, 2, brief)) + "\n"
        if len(text) <= room:
            return text
    return None


def _titled(block: AnyBlock, depth: int, brief: bool) -> Iterator[str]:
    if isinstance(block, GroupBlock):
        yield from _group(block, depth, brief)
        return
    if block.title:
        yield from (f"{'#' * depth} {words(block.title)}", "")
    yield from _lines(block)


def _group(block: GroupBlock, depth: int, brief: bool) -> Iterator[str]:
    tag = f": **{words(block.tag.text)}**" if block.tag else ""
    note = f" ({words(block.note)})" if block.note else ""
    yield from (f"{'#' * depth} {words(block.title)}{tag}{note}", "")
    for inner in _shown(block.blocks):
        details = Medium.TERMINAL not in inner.media
        if not (brief and details):
            yield from _titled(inner, depth + 1, brief)


@singledispatch
def _lines(block: SheetBlock) -> Iterator[str]:
    raise TypeError(f"no Markdown is made of a {type(block).__name__}")


@_lines.register
def _text(block: TextBlock) -> Iterator[str]:
    strong = "**" if block.tone == "strong" else ""
    yield from (f"{strong}{words(block.text[:LONGEST])}{strong}", "")


@_lines.register
def _facts(block: FactBlock) -> Iterator[str]:
    yield from table(("", ""), [(words(label), cell(value)) for label, value in block.rows])


@_lines.register
def _list(block: ListBlock) -> Iterator[str]:
    for item in block.items:
        note = f": {words(item.note[:LONGEST])}" if item.note else ""
        command = f"; {code(item.command)}" if item.command else ""
        yield f"- {words(item.text[:LONGEST])}{note}{command}"
    yield ""


@_lines.register
def _table(block: TableBlock) -> Iterator[str]:
    several = max(map(len, block.rows), default=len(block.heads))
    heads: Sequence[str] = block.heads or ("",) * several
    yield from table(heads, [tuple(map(_cell, row)) for row in block.rows])
    if block.note:
        yield from (words(block.note), "")


def _cell(found: Cell) -> str:
    return found.text if found.right and _WORDS.fullmatch(found.text) else cell(found.text)


@_lines.register
def _chart(block: ChartBlock) -> Iterator[str]:
    yield from ("```text", *bars(block), "```", "")


@_lines.register
def _time(block: TimeBlock) -> Iterator[str]:
    return iter(())


@_lines.register
def _code(block: CodeBlock) -> Iterator[str]:
    fence = "`" * max(3, longest(block.text) + 1)
    yield from (f"{fence}{block.language}", *block.text.split("\n"), fence, "")
