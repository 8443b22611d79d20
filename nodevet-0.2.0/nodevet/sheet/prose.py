"""Parse Markdown that authors of checks write: paragraphs, lists and lines to type. Pure."""

import re
import textwrap
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from markupsafe import Markup

_STRONG = r"\*\*(.+?)\*\*"
_CODE = r"`([^`]*)`"


class ProseKind(Enum):
    """The kind of a paragraph."""

    TEXT = "text"
    ITEMS = "items"
    CODE = "code"  # indented: to be typed


class Paragraph(NamedTuple):
    """Lines of text or code, or items."""

    kind: ProseKind
    lines: tuple[str, ...]


def paragraphs(text: str) -> list[Paragraph]:
    """The parts that empty lines separate."""
    return [_paragraph(part) for part in text.split("\n\n") if part]


def _paragraph(text: str) -> Paragraph:
    lines = tuple(text.split("\n"))
    if text.startswith(" "):
        return Paragraph(ProseKind.CODE, lines)
    if not text.startswith("- "):
        return Paragraph(ProseKind.TEXT, lines)
    items: list[str] = []
    for line in lines:
        if line.startswith("- "):
            items.append(line)
        else:
            items[-1] += f"\n{line}"
    return Paragraph(ProseKind.ITEMS, tuple(items))


def fill(text: str, width: int | None) -> list[str]:
    """Lines of at most `width` columns; a paragraph that fits is left as it is."""
    out: list[str] = []
    for paragraph in paragraphs(text):
        lines = [line for part in paragraph.lines for line in part.split("\n")]
        too_wide = width is not None and max(map(len, lines)) > width
        out += ["", *(_fill(paragraph, width or 0) if too_wide else lines)]
    return out[1:]


def _fill(paragraph: Paragraph, width: int) -> list[str]:
    if paragraph.kind is ProseKind.CODE:
        return list(paragraph.lines)
    items = paragraph.kind is ProseKind.ITEMS
    parts = paragraph.lines if items else ("\n".join(paragraph.lines),)
    return [
        line
        for part in parts
        for line in textwrap.wrap(
            part,
            width,
            subsequent_indent="  " if items else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def markup(text: str) -> Markup:
    """Strong words and code as HTML; everything is escaped.

    >>> markup("**A** <b> `c`")
    Markup('<strong>A</strong> &lt;b&gt; <code>c</code>')
    """
    return _tagged(_CODE, "code", text, lambda part: _tagged(_STRONG, "strong", part, str))


def commands(text: str) -> Markup:
    """Words between backticks as code; everything is escaped.

    >>> commands("see `ls <x>`; 1 ` 2")
    Markup('see <code>ls &lt;x&gt;</code>; 1 ` 2')
    """
    return _tagged(_CODE, "code", text, str)


def _tagged(pattern: str, tag: str, text: str, outside: Callable[[str], str]) -> Markup:
    """What `pattern` matches as an HTML element, the text between by `outside`."""
    element = Markup(f"<{tag}>{{}}</{tag}>")  # noqa: S704 - ours
    parts = enumerate(re.split(pattern, text))
    return Markup("").join(element.format(part) if n % 2 else outside(part) for n, part in parts)
