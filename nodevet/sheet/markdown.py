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
"""Text in which nothing can be markup, a link with a scheme, or a mention."""
_LINKED = re.compile(r"(?i)www\.|\b[0-9a-f]{7,40}\b")
"""What GitHub makes a link of: a host's name that begins so, the hash of a commit."""
_BEGINS = re.compile(r"[A-Za-z(≤≥?…–]|[0-9](?![0-9]*[.)] )")
"""How text begins that is neither a list, a heading nor a rule."""


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
    return text if _is_plain(text) else code(text)


def _is_plain(text: str) -> bool:
    return bool(_WORDS.fullmatch(text) and _BEGINS.match(text) and not _LINKED.search(text))


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
    yield from table(("", ""), [(_label(label), cell(value)) for label, value in block.rows])


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
    heads: Sequence[str] = tuple(map(_label, block.heads)) or ("",) * several
    yield from table(heads, [tuple(map(_cell, row)) for row in block.rows])
    if block.note:
        yield from (words(block.note), "")


def _label(text: str) -> str:
    return text if _is_plain(text) else cell(text)


def _cell(found: Cell) -> str:
    return found.text if found.right and _is_plain(found.text) else cell(found.text)


@_lines.register
def _chart(block: ChartBlock) -> Iterator[str]:
    yield from _fenced("\n".join(bars(block)), "text")


@_lines.register
def _time(block: TimeBlock) -> Iterator[str]:
    return iter(())


@_lines.register
def _code(block: CodeBlock) -> Iterator[str]:
    yield from _fenced(block.text, block.language)


def _fenced(text: str, language: str) -> Iterator[str]:
    fence = "`" * max(3, longest(text) + 1)
    yield from (f"{fence}{language}", *text.split("\n"), fence, "")
