"""Markdown that authors of checks write, taken apart: paragraphs, lists and lines to type. Pure."""

import re
import textwrap
from enum import Enum
from typing import NamedTuple

from markupsafe import Markup

_STRONG = re.compile(r"\*\*(.+?)\*\*")


class ProseKind(Enum):
    """What a paragraph is."""

    TEXT = "text"
    ITEMS = "items"
    CODE = "code"  # indented: to be typed


class Paragraph(NamedTuple):
    """Lines of text or code, or items."""

    kind: ProseKind
    lines: tuple[str, ...]


def paragraphs(text: str) -> list[Paragraph]:
    """What empty lines separate."""
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


def filled(text: str, width: int | None) -> list[str]:
    """Lines of at most `width` columns; as they were written if they are."""
    out: list[str] = []
    for paragraph in paragraphs(text):
        lines = [line for part in paragraph.lines for line in part.split("\n")]
        wide = width is not None and max(map(len, lines)) > width
        out += ["", *(_filled(paragraph, width or 0) if wide else lines)]
    return out[1:]


def _filled(paragraph: Paragraph, width: int) -> list[str]:
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
    """Strong words and code as HTML; all of it escaped.

    >>> markup("**A** <b> `c`")
    Markup('<strong>A</strong> &lt;b&gt; <code>c</code>')
    """
    parts = re.split("`([^`]*)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else _strong(part)
        for place, part in enumerate(parts)
    )


def _strong(text: str) -> Markup:
    parts = _STRONG.split(text)
    return Markup("").join(
        Markup("<strong>{}</strong>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )
