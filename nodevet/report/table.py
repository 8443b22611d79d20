"""A run as people read it in a terminal: what matters first, hosts folded, one line each.

Without `width` every line is as long as it needs to be; with it, long host lists go on over more
lines, nothing of them is cut, and advice that has no room stands below its line. Of a run of
fixes, what was done on each host stands below.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from nodevet.changes import changes
from nodevet.model import Run, Severity
from nodevet.printable import cells, cut
from nodevet.report.parts.facts import above
from nodevet.report.parts.fold import Line, lines, summary, totals
from nodevet.report.parts.passed import passed
from nodevet.report.parts.text import GAP, column, count, nodeset, pad, wrap

if TYPE_CHECKING:
    from nodevet.resource import Contents
    from nodevet.result import Result

ENDING = ".txt"
NARROWEST = 18  # columns that the hosts keep, however narrow the terminal
FEWEST = 12  # columns of `what` that stay, however narrow the terminal

_RED, _YELLOW, _MAGENTA, _GREEN, _DIM, _BOLD = "31", "33", "35", "32", "2", "1"


def render_checks(
    run: Run,
    *,
    colour: bool = False,
    width: int | None = None,
    previous: Run | None = None,
    everything: bool = False,
    quiet: bool = False,
) -> str:
    """One line per difference, then the totals; above those of one host, what it is.

    `width` is in columns. `everything`: what passed too, with its value. `quiet`: only what counts
    for the exit code.
    """
    since = changes(previous, run) if previous else None
    rows = lines(run, since.marks if since else None)
    hidden = 0
    if quiet:
        shown = tuple(replace(row, advice=()) for row in rows if row.fails)
        rows, hidden = shown, len(rows) - len(shown)
    rows += passed(run) if everything and not quiet else ()
    text = _table(rows, colour, width)
    total = summary(run, since.words if since else "")
    total += f" · {count(hidden, 'row')} not shown" if hidden else ""
    if colour:
        total = _sgr(total, _GREEN if totals(run).all_ok else _BOLD)
    head = () if quiet else above(run, width)
    return "\n".join([*head, *text, *([""] if text else []), total]) + "\n"


def _table(rows: tuple[Line, ...], colour: bool, width: int | None) -> list[str]:
    checks = max((cells(row.check) for row in rows), default=0)
    said = [pad(row.check, checks) + GAP + row.what if row.check else row.what for row in rows]
    where = [nodeset(row.hosts) + (f" {row.subjects}" if row.named else "") for row in rows]
    labels = max((cells(row.label) for row in rows), default=0)
    middle = column(said)
    if width is not None:
        room = max(checks + len(GAP) + FEWEST, width - labels - 2 * len(GAP) - NARROWEST)
        middle = min(middle, room)
        said = [cut(text, room) for text in said]
    wheres = column(where)
    out: list[str] = []
    for row, text, hosts in zip(rows, said, where, strict=True):
        label = pad(row.label, labels)
        lead = GAP + pad(text, middle) + GAP
        body = GAP.join([pad(hosts, wheres), *_rest(row)]).rstrip()
        indent = labels + cells(lead)
        shown = _sgr(label, _tint(row)) if colour else label
        if width is None or indent + cells(body) <= width or not row.advice:
            out += _fitted(shown + lead, body, indent, width)
            continue
        body = GAP.join([pad(hosts, wheres), *_rest(replace(row, advice=()))]).rstrip()
        out += _fitted(shown + lead, body, indent, width)
        margin = " " * (labels + len(GAP))
        room = max(NARROWEST, width - len(margin))
        out += [margin + line for line in wrap(f"advice: {row.advised}", room)]
    return [line.rstrip() for line in out]


def _fitted(lead: str, body: str, indent: int, width: int | None) -> list[str]:
    """One line, or as many as the body needs after the `indent` columns of the lead."""
    if width is None or indent + cells(body) <= width:
        return [lead + body]
    first, *rest = wrap(body, max(NARROWEST, width - indent))
    return [lead + first, *(" " * indent + line for line in rest)]


def _rest(row: Line) -> list[str]:
    new = "NEW" if row.new == row.count else f"NEW: {row.new:,} of {row.count:,}"
    counted = "" if row.named else row.subjects
    return [part for part in (counted, new if row.new else "", row.note) if part]


def _tint(row: Line) -> str:
    if row.label == "WAIVED" or not row.fails:
        return _DIM
    if row.label == "FAIL":
        return _RED if row.severity is Severity.CRITICAL else _YELLOW
    return _MAGENTA


def _sgr(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def render_fixes(
    result: "Result",
    *,
    contents: "Contents" = lambda name: None,
    folder: str = "RUN",
    inventories: Sequence[str] = ("INVENTORY",),
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Outcomes, what was done, what is next. `contents` of files; `folder` of the run, and
    `inventories` of its hosts, as commands name them."""
    from nodevet.report.parts.fix_table import table

    return table(result, contents, folder, inventories, colour=colour, width=width)
