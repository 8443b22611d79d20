"""A sheet as one HTML page that works without a network and without a script. Pure.

Texts go through Jinja's autoescape. The page's policy allows exactly its own style, by hash.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from importlib.resources import files

import jinja2
from markupsafe import Markup

from nodevet.sheet import chart, timestrip
from nodevet.sheet.model import (
    AnyBlock,
    ChartBlock,
    GroupBlock,
    Medium,
    Sheet,
    TableBlock,
    TimeBlock,
)

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"
TAGS = ("fail", "warning", "ok", "unknown", "waived", "unreached")
MOST_GROUPS = 200  # of the sheet itself; the page would have megabytes
MOST_DRAWN = 64  # blocks of strips over time
UNDRAWN = f"Charts are drawn of the first {MOST_DRAWN}; the JSON document has them all."


def render(sheet: Sheet) -> str:
    """The page, with at most MOST_GROUPS groups; the others are counted."""
    style = source("nodevet.sheet", "base") + source("nodevet.sheet", "style")
    blocks = _shown(sheet.blocks)
    groups = [block for block in blocks if isinstance(block, GroupBlock)]
    left_out = {id(group) for group in groups[MOST_GROUPS:]}
    drawn: list[TimeBlock] = []
    return template("nodevet.sheet", "page").render(
        policy=f"{NOTHING}; style-src '{hash_of(style)}'",
        style=Markup(style),  # noqa: S704 - ours
        sheet=sheet,
        blocks=[block for block in blocks if id(block) not in left_out],
        left=f"{len(left_out):,} {sheet.more} not shown" if left_out else "",
        shown=_shown,
        kind=lambda block: type(block).__name__,
        chart_of=chart.drawn,
        strips_of=lambda block: _strips(block, drawn),
        drawn=drawn,
        most=MOST_DRAWN,
        undrawn=UNDRAWN,
        size=chart,
        strip_size=timestrip,
        tags=TAGS,
    )


def _shown(blocks: Iterable[AnyBlock]) -> list[AnyBlock]:
    """The blocks that a page shows; none that is empty."""
    return [block for block in blocks if Medium.PAGE in block.media and not _empty(block)]


def _empty(block: AnyBlock) -> bool:
    match block:
        case TableBlock():
            return not (block.rows or block.note)
        case ChartBlock():
            return not block.lines
        case TimeBlock():
            return not block.strips
    return False


def _strips(block: TimeBlock, drawn: list[TimeBlock]) -> list[timestrip.DrawnStrip]:
    """The strips; none of a block after MOST_DRAWN others."""
    drawn.append(block)
    return timestrip.strips(block) if len(drawn) <= MOST_DRAWN else []


def template(package: str, name: str) -> jinja2.Template:
    """A template of a package, with the filter `commands`. Everything is escaped."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        loader=jinja2.FunctionLoader(lambda file: source(package, file)),
    )
    environment.filters["commands"] = commands
    return environment.get_template(name)


def commands(text: str) -> Markup:
    """What stands between backticks as code; all of it escaped.

    >>> commands("see `ls <x>`; 1 ` 2")
    Markup('see <code>ls &lt;x&gt;</code>; 1 ` 2')
    """
    parts = re.split("`([^`]*)`", text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(each) if at % 2 else each for at, each in enumerate(parts))


def source(package: str, name: str) -> str:
    """The text of a .jinja file."""
    return files(package).joinpath(f"{name}.jinja").read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """The source expression of a style or a script for a Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
