"""A sheet as one HTML page that works without a network; only a matrix needs a script. Pure.

Texts go through Jinja's autoescape, or into the page as JSON that the script shows with textContent
alone. The page's policy allows exactly its own style and script, by hash.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.resources import files

import jinja2
from markupsafe import Markup

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
TAGS = ("fail", "warning", "ok", "unknown", "waived", "unreached")
SIGNS = {"-": "before", "+": "after", "@": "quiet"}  # how a line of a diff begins
HERE = "nodevet.sheet"
SHORT = 70  # columns of a nodeset, or of the beginning of advice
LONG = 30  # columns: a part of a nodeset that may break anywhere
MOST_GROUPS = 200  # of the sheet itself; the page would have megabytes
MOST_DRAWN = 64  # blocks of strips over time
UNDRAWN = f"Charts are drawn of the first {MOST_DRAWN}; the JSON document has them all."


def render(sheet: Sheet) -> str:
    """The page, with at most MOST_GROUPS groups; the others are counted."""
    blocks = _shown(sheet.blocks)
    groups = [block for block in blocks if isinstance(block, GroupBlock)]
    left_out = {id(group) for group in groups[MOST_GROUPS:]}
    found = next((block for block in blocks if isinstance(block, MatrixBlock)), None)
    style = source(HERE, "base") + source(HERE, "style")
    style += source(HERE, "matrix_style") if _has_rows(blocks) else ""
    script = source(HERE, "matrix_script") if found else ""
    drawn: list[TimeBlock] = []
    return template(HERE, "page").render(
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        data=Markup(_data(found, blocks)) if found else "",  # noqa: S704 - no < > & left in it
        matrix=found,
        groups=_groups(found) if found else (),
        words=_words,
        sided=_sided,
        nodeset=nodeset,
        sheet=sheet,
        alerts=[block for block in blocks if _is_alert(block)],
        blocks=[b for b in blocks if id(b) not in left_out and not _is_alert(b)],
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
        signs=SIGNS,
        paragraphs=prose.paragraphs,
        markup=prose.markup,
        marked=excerpts.marked,
    )


def _policy(style: str, script: str) -> str:
    run = f"; script-src '{hash_of(script)}'" if script else ""
    return f"{NOTHING}; style-src '{hash_of(style)}'{run}"


def _has_rows(blocks: Iterable[AnyBlock]) -> bool:
    return any(isinstance(block, (DifferenceBlock, MatrixBlock)) for block in blocks)


def _is_alert(block: AnyBlock) -> bool:
    return isinstance(block, TextBlock) and block.tone == "alert"


def _data(block: MatrixBlock, blocks: Iterable[AnyBlock]) -> str:
    """What the script draws from; the first differences are those of the matrix."""
    of = (each for each in blocks if isinstance(each, DifferenceBlock) and not each.folded)
    differences = next(of, None)
    return matrix.embedded(matrix.data(block, differences.rows if differences else ()))


def _groups(block: MatrixBlock) -> list[tuple[str, int]]:
    """The groups of the rows, and how many rows are in each."""
    return sorted(Counter(group for row in block.rows for group in row.groups).items())


def _words(block: MatrixBlock) -> list[str]:
    """What rows and entries came out as, the worst first."""
    ranks = sorted(block.entries, key=lambda entry: -entry.rank)
    words = (*(word for word, *_ in block.outcomes), *(entry.word for entry in ranks))
    return list(dict.fromkeys(words))


def _sided(block: CodeBlock) -> Iterator[tuple[str, str, str]]:
    """The lines of a diff: what each is, that in words if it was something else before, and it."""
    names = dict(zip("-+", block.sides, strict=True))
    before = ""
    for line in block.text.split("\n"):
        side = names.get(line[:1], "")
        kind = side or ("gap" if line[:1] == "@" else "same")
        yield kind, side if side != before else "", "⋯" if kind == "gap" else line[1:]
        before = side


def _shown(blocks: Iterable[AnyBlock]) -> list[AnyBlock]:
    """The blocks that a page shows; none that is empty."""
    return [block for block in blocks if Medium.PAGE in block.media and not _empty(block)]


def _empty(block: AnyBlock) -> bool:
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
    environment.filters |= {"commands": commands, "folded": folded, "beginning": beginning}
    return environment.get_template(name)


def commands(text: str) -> Markup:
    """What stands between backticks as code; all of it escaped.

    >>> commands("see `ls <x>`; 1 ` 2")
    Markup('see <code>ls &lt;x&gt;</code>; 1 ` 2')
    """
    parts = re.split("`([^`]*)`", text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(each) if at % 2 else each for at, each in enumerate(parts))


def folded(hosts: str) -> Markup:
    """A nodeset, shortened; it may break after its commas and nowhere else."""
    parts = re.split("(?<=,)", brief(hosts, SHORT))
    part = Markup("<i>{}</i><wbr>")
    return Markup("").join(part.format(each) if len(each) < LONG else each for each in parts)


def beginning(text: str) -> str:
    """The first words of a long text."""
    return re.sub(r"\s+\S*$", "", text[:SHORT]).replace("`", "")


def source(package: str, name: str) -> str:
    """The text of a .jinja file."""
    return files(package).joinpath(f"{name}.jinja").read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """The source expression of a style or a script for a Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
