"""A sheet as one HTML page that works without a network; only a matrix needs a script. Pure.

Jinja escapes texts, or the page holds them as JSON that the script shows only with textContent. The
page's policy allows exactly its own style and script, by hash.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import jinja2
from markupsafe import Markup, escape

from nodevet.base.printable import brief
from nodevet.sheet import chart, excerpts, matrix, prose, timestrip
from nodevet.sheet.model import (
    AnyBlock,
    ChartBlock,
    CodeBlock,
    DifferenceBlock,
    ExcerptBlock,
    FactBlock,
    GroupBlock,
    MatrixBlock,
    Medium,
    Sheet,
    TableBlock,
    TextBlock,
    TimeBlock,
)
from nodevet.sheet.text import nodeset

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"
SITE = f"{NOTHING}; style-src 'self'; script-src 'self'"  # the policy of a page of a site
TAGS = ("fail", "warning", "ok", "unknown", "waived", "unreached")
SIGNS = {"-": "before", "+": "after", "@": "quiet"}  # the first character of a line of a diff
HERE = "nodevet.sheet"
SHORT = 70  # columns of a nodeset, or of the beginning of advice
LONG = 30  # columns; a longer part of a nodeset may break anywhere
MOST_GROUPS = 200  # of the sheet; with more the page would have megabytes
MOST_DRAWN = 64  # blocks of strips over time
UNDRAWN = f"Charts are drawn of the first {MOST_DRAWN}; the JSON document has them all."


class Tile(NamedTuple):
    """A number with its meaning, which links to a page. `tone`: as in a `Cell`."""

    number: int
    label: str
    tone: str
    path: str


class SiteFrame(NamedTuple):
    """What a page of a site has around its sheet. Paths are relative to the page."""

    top: str  # the folder of the site: "", "../"
    style: str
    script: str
    menu: tuple[tuple[str, str], ...]  # label and path
    crumbs: tuple[tuple[str, str], ...]  # label and path of the pages that this one belongs to
    linked: Callable[[str], Markup]  # a text whose names are links
    tiles: tuple[Tile, ...] = ()
    state: str = ""  # the name of the data of which the script shows a row below the title
    about: str = ""  # the first field of that row; without data, a moment whose age is shown
    foot: str = ""


def render(sheet: Sheet, frame: SiteFrame | None = None) -> str:
    """The page, with at most MOST_GROUPS groups; the others are counted. With a frame it is a page
    of a site, which has one style sheet and one script for all pages."""
    blocks = _visible(sheet.blocks)
    groups = [block for block in blocks if isinstance(block, GroupBlock)]
    left_out = {id(group) for group in groups[MOST_GROUPS:]}
    matrix_block = next((block for block in blocks if isinstance(block, MatrixBlock)), None)
    style = source(HERE, "base") + source(HERE, "style")
    style += source(HERE, "matrix_style") if _has_rows(blocks) else ""
    script = source(HERE, "matrix_script") if matrix_block else ""
    drawn: list[TimeBlock] = []
    return template(HERE, "page").render(
        policy=SITE if frame else _policy(style, script),
        frame=frame,
        linked=frame.linked if frame else escape,
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        data=Markup(_data(matrix_block, blocks)) if matrix_block else "",  # noqa: S704 - no < > & left in it
        matrix=matrix_block,
        groups=_groups(matrix_block) if matrix_block else (),
        words=_words,
        sided=_diff_lines,
        nodeset=nodeset,
        sheet=sheet,
        alerts=[block for block in blocks if _is_alert(block)],
        blocks=[b for b in blocks if id(b) not in left_out and not _is_alert(b)],
        left=f"{len(left_out):,} {sheet.more} not shown" if left_out else "",
        shown=_visible,
        kind=lambda block: type(block).__name__,
        chart_of=chart.draw,
        strips_of=lambda block: _strips(block, drawn),
        drawn=drawn,
        most=MOST_DRAWN,
        undrawn=UNDRAWN,
        size=chart,
        strip_size=timestrip,
        tags=TAGS,
        signs=SIGNS,
        paragraphs=prose.paragraphs,
        markup=prose.markup,
        marked=excerpts.marked_line,
    )


def _policy(style: str, script: str) -> str:
    run = f"; script-src '{hash_of(script)}'" if script else ""
    return f"{NOTHING}; style-src '{hash_of(style)}'{run}"


def _has_rows(blocks: Iterable[AnyBlock]) -> bool:
    return any(isinstance(block, (DifferenceBlock, MatrixBlock)) for block in blocks)


def _is_alert(block: AnyBlock) -> bool:
    return isinstance(block, TextBlock) and block.tone == "alert"


def _data(block: MatrixBlock, blocks: Iterable[AnyBlock]) -> str:
    """The data of the script; the first block of differences is that of the matrix."""
    main = (
        candidate
        for candidate in blocks
        if isinstance(candidate, DifferenceBlock) and not candidate.folded
    )
    differences = next(main, None)
    return matrix.embedded(matrix.data(block, differences.rows if differences else ()))


def _groups(block: MatrixBlock) -> list[tuple[str, int]]:
    """The groups of the rows, each with its number of rows."""
    return sorted(Counter(group for row in block.rows for group in row.groups).items())


def _words(block: MatrixBlock) -> list[str]:
    """The outcomes of rows and entries, the worst first."""
    ranks = sorted(block.entries, key=lambda entry: -entry.rank)
    words = (*(word for word, *_ in block.outcomes), *(entry.word for entry in ranks))
    return list(dict.fromkeys(words))


def _diff_lines(block: CodeBlock) -> Iterator[tuple[str, str, str]]:
    """The lines of a diff: kind, the side if it differs from the line before, and text."""
    names = dict(zip("-+", block.sides, strict=True))
    before = ""
    for line in block.text.split("\n"):
        side = names.get(line[:1], "")
        kind = side or ("gap" if line[:1] == "@" else "same")
        yield kind, side if side != before else "", "⋯" if kind == "gap" else line[1:]
        before = side


def _visible(blocks: Iterable[AnyBlock]) -> list[AnyBlock]:
    """The blocks that a page shows, without empty ones."""
    return [block for block in blocks if Medium.PAGE in block.media and not _is_empty(block)]


def _is_empty(block: AnyBlock) -> bool:
    match block:
        case TableBlock():
            return not (block.rows or block.note)
        case ChartBlock():
            return not block.lines
        case ExcerptBlock() | FactBlock():
            return not block.rows
        case TimeBlock():
            return not block.strips
    return False


def _strips(block: TimeBlock, drawn: list[TimeBlock]) -> list[timestrip.DrawnStrip]:
    """The strips of a block; none after MOST_DRAWN blocks."""
    drawn.append(block)
    return timestrip.strips(block) if len(drawn) <= MOST_DRAWN else []


@cache
def template(package: str, name: str) -> jinja2.Template:
    """A template of a package, with the filters of this module. Everything is escaped.

    It is compiled once in a process: that takes longer than to write a page.
    """
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        loader=jinja2.FunctionLoader(lambda file: source(package, file)),
    )
    filters = {"commands": prose.commands, "folded": short_nodeset, "beginning": beginning}
    environment.filters |= filters
    return environment.get_template(name)


def short_nodeset(hosts: str) -> Markup:
    """A shortened nodeset that breaks only after its commas."""
    parts = re.split("(?<=,)", brief(hosts, SHORT))
    unbroken = Markup("<i>{}</i><wbr>")
    pieces = (unbroken.format(part) if len(part) < LONG else part for part in parts)
    return Markup("").join(pieces)


def beginning(text: str) -> str:
    """The first words of a long text."""
    return re.sub(r"\s+\S*$", "", text[:SHORT]).replace("`", "")


def source(package: str, name: str) -> str:
    """The text of a .jinja file."""
    return files(package).joinpath(f"{name}.jinja").read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """The source expression of a style or a script for a Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
