"""A sheet as Markdown, for a GitHub comment or a ticket. Pure.

Text that others may have written appears only in code spans and fenced blocks, where neither markup
nor HTML nor an @mention is live. GitHub takes 65,536 characters: the rest is left out, details
first, and counted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from itertools import accumulate

from nodevet.base.printable import brief, plain
from nodevet.sheet import excerpts
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    ChartBlock,
    CodeBlock,
    DifferenceBlock,
    DifferenceRow,
    ExcerptBlock,
    FactBlock,
    GroupBlock,
    HostRowBlock,
    ListBlock,
    Medium,
    ProseBlock,
    Sheet,
    SheetBlock,
    TableBlock,
    TextBlock,
    TimeBlock,
)
from nodevet.sheet.terminal import bars
from nodevet.sheet.text import count, nodeset

MOST = 65_000  # characters of a document
LEFT_OUT = 100  # characters of the sentence that counts what is left out
LONGEST = 2_000  # characters of one paragraph or item
MOST_ROWS = 40_000  # characters of differences
MOST_ADVICE = 10_000
MOST_HOSTS = 2_000  # columns of the hosts of one difference, or of all that is left out
_WORDS = re.compile(
    r"(?:[A-Za-z0-9 .,;()%/+=–…·≤≥×→?'°-]"
    r"|: "
    r"|(?<=[A-Za-z0-9])_(?=[A-Za-z0-9])"  # within a word
    r"|\[[0-9,-]+\](?![(\[:])"  # of a nodeset
    r")*"
)
"""Text in which nothing can be markup, a link with a scheme, or a mention."""
_LINKED = re.compile(r"(?i)www\.|\b[0-9a-f]{7,40}\b")
"""Text that GitHub turns into a link: a host's name that begins with www, a commit's hash."""
_BEGINS = re.compile(r"[A-Za-z(≤≥?…–]|[0-9](?![0-9]*[.)] )")
"""The beginning of text that is neither a list, a heading nor a rule."""


def render(sheet: Sheet) -> str:
    """The document, in at most MOST characters."""
    text = "\n".join(_head(sheet)) + "\n"
    end = f"{words(sheet.end)}\n" if sheet.end else ""
    blocks = list(_visible(sheet.blocks))
    room = MOST - len(end) - LEFT_OUT - len(_hosts_of(blocks))
    for place, block in enumerate(blocks):
        piece = _fitting(block, room - len(text))
        if piece is None:
            rest = blocks[place:]
            text += f"{len(rest):,} {sheet.more} have no room here{_hosts_of(rest)}.\n\n"
            break
        text += piece
    return (text + end).rstrip("\n") + "\n"


def _hosts_of(blocks: Sequence[AnyBlock]) -> str:
    """The hosts of groups that are left out: `: 12 hosts, gpu[001-012]`."""
    groups = (block for block in blocks if isinstance(block, GroupBlock))
    hosts = [host for group in groups for host in group.hosts]
    return f": {_hosts(hosts)}" if hosts else ""


def _hosts(hosts: Sequence[str]) -> str:
    """`gpu001`, or `12 hosts, gpu[001-012]`."""
    nodes = cell(brief(nodeset(hosts), MOST_HOSTS))
    return f"{len(hosts):,} hosts, {nodes}" if len(hosts) > 1 else nodes


def words(text: str) -> str:
    """The text, in a code span if anything in it could be markup."""
    return text if _is_plain(text) else code(text)


def _is_plain(text: str) -> bool:
    return bool(_WORDS.fullmatch(text) and _BEGINS.match(text) and not _LINKED.search(text))


def _head(sheet: Sheet) -> Iterator[str]:
    yield from (f"# {words(sheet.title)}", "")
    if sheet.facts:
        yield from (" · ".join(map(words, sheet.facts)), "")


def _visible(blocks: Iterable[AnyBlock]) -> Iterator[AnyBlock]:
    return (block for block in blocks if Medium.MARKDOWN in block.media)


def _fitting(block: AnyBlock, room: int) -> str | None:
    """The block if it fits, else the block without its details, else None."""
    for short in (False, True):
        text = "\n".join(_titled(block, 2, short)) + "\n"
        if len(text) <= room:
            return text
    return None


def _titled(block: AnyBlock, depth: int, short: bool) -> Iterator[str]:
    if isinstance(block, GroupBlock):
        yield from _group(block, depth, short)
        return
    if block.title:
        yield from (f"{'#' * depth} {words(block.title)}", "")
    yield from _lines(block)


def _group(block: GroupBlock, depth: int, short: bool) -> Iterator[str]:
    tag = f": **{words(block.tag.text)}**" if block.tag else ""
    note = f" ({words(block.note)})" if block.note else ""
    yield from (f"{'#' * depth} {words(block.title)}{tag}{note}", "")
    for inner in _visible(block.blocks):
        details = Medium.TERMINAL not in inner.media
        if not (short and details):
            yield from _titled(inner, depth + 1, short)


@singledispatch
def _lines(block: SheetBlock) -> Iterator[str]:
    raise TypeError(f"no Markdown is made of a {type(block).__name__}")


@_lines.register
def _text(block: TextBlock) -> Iterator[str]:
    strong = "**" if block.tone in ("strong", "alert") else ""
    quoted = "> " if block.tone == "alert" else ""
    yield from (f"{quoted}{strong}{words(block.text[:LONGEST])}{strong}", "")


@_lines.register
def _prose(block: ProseBlock) -> Iterator[str]:
    yield from (block.text, "")


@_lines.register
def _facts(block: FactBlock) -> Iterator[str]:
    yield from _table_lines(("", ""), [(_label(label), cell(value)) for label, value in block.rows])


@_lines.register
def _list(block: ListBlock) -> Iterator[str]:
    for item in block.items:
        note = f": {words(item.note[:LONGEST])}" if item.note else ""
        command = f"; {code(item.command)}" if item.command else ""
        yield f"- {words(item.text[:LONGEST])}{note}{command}"
    yield ""


@_lines.register
def _table(block: TableBlock) -> Iterator[str]:
    width = max(map(len, block.rows), default=len(block.heads))
    heads: Sequence[str] = tuple(map(_label, block.heads)) or ("",) * width
    yield from _table_lines(heads, [tuple(map(_cell, row)) for row in block.rows])
    if block.note:
        yield from (words(block.note), "")


def _label(text: str) -> str:
    return text if _is_plain(text) else cell(text)


def _cell(value: Cell) -> str:
    return value.text if value.right and _is_plain(value.text) else cell(value.text)


@_lines.register
def _chart(block: ChartBlock) -> Iterator[str]:
    yield from _fenced("\n".join(bars(block)), "text")


@_lines.register
def _time(block: TimeBlock) -> Iterator[str]:
    return iter(())


@_lines.register
def _code(block: CodeBlock) -> Iterator[str]:
    yield from _fenced(block.text, block.language)


@_lines.register
def _host_rows(block: HostRowBlock) -> Iterator[str]:
    width = max((len(row.cells) for row in block.rows), default=0)
    rows = [
        (*map(cell, row.cells), _hosts(row.hosts), cell(row.subjects), cell(row.note))
        for row in block.rows
    ]
    yield from _table_lines(("",) * width + ("hosts", "of them", "note"), rows)


@_lines.register
def _excerpts(block: ExcerptBlock) -> Iterator[str]:
    for row in block.rows:
        yield from (words(excerpts.sentence(row)[:LONGEST]), "")
        if lines := list(excerpts.marked_line(row)):
            yield from _fenced("\n".join(lines), "text")


@_lines.register
def _differences(block: DifferenceBlock) -> Iterator[str]:
    """A table of the differences that fit, then the advice, once for each kind of difference."""
    rows = [(row.label, *_difference(row)) for row in block.rows]
    shown = _first(rows, MOST_ROWS)
    if rows:
        yield from _table_lines((*block.heads, "hosts", "of them", "note"), rows[:shown])
    if rest := block.rows[shown:]:
        hosts = list(dict.fromkeys(host for row in rest for host in row.hosts))
        yield from (f"Left out: {count(len(rest), 'difference')} on {_hosts(hosts)}.", "")
    advice = list(dict.fromkeys(line for row in block.rows for line in _advice(row)))
    if shown := _first([(line,) for line in advice], MOST_ADVICE):
        yield from ("## What to do", "", *advice[:shown], "")
    if block.note:
        yield from (words(block.note), "")


def _advice(row: DifferenceRow) -> Iterator[str]:
    """What a difference needs, and each piece of advice."""
    head = f"- {code(row.name)}: {row.needs}"
    if row.needs and not row.advice:
        yield head
    for text in row.advice:
        yield f"{head}{': ' if row.needs else ''}{code(text)}"


def _difference(row: DifferenceRow) -> Iterator[str]:
    yield from map(cell, (row.name, row.text))
    yield _hosts(row.hosts)
    yield cell(row.parts)
    new = f"**{row.new}**" if row.new else ""
    remark = cell("; ".join(filter(None, (row.since, row.note))))
    yield " ".join(filter(None, (new, row.level, remark)))


def _first(rows: Sequence[Sequence[str]], room: int) -> int:
    """How many rows, from the first on, fit into `room` characters together."""
    return sum(total <= room for total in accumulate(sum(map(len, row)) for row in rows))


def _fenced(text: str, language: str) -> Iterator[str]:
    fence = "`" * max(3, _longest_fence(text) + 1)
    yield from (f"{fence}{language}", *text.split("\n"), fence, "")


def code(text: str) -> str:
    """A code span around any text."""
    printable = plain(text)
    fence = "`" * (_longest_fence(printable) + 1)
    room = " " if printable.startswith("`") or printable.endswith("`") else ""
    return f"{fence}{room}{printable}{room}{fence}" if printable.strip() else "` `"


def cell(text: str) -> str:
    """A code span in a table, with its pipes escaped."""
    escaped = plain(text).replace("\\|", "\\x5c\\x7c").replace("|", "\\|")
    return code(escaped) if text else ""


def _longest_fence(text: str) -> int:
    """The length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)


def _table_lines(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, and an empty line."""
    heads = tuple(heads)
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
