"""A run as people read it in a terminal: what matters first, hosts folded, one line each.

Without `width` every line is as long as it needs to be; with it, what has no room goes on below.
Of a run of fixes, what was done on each host stands below.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodevet.model import Run
from nodevet.report.parts.grid import grid
from nodevet.sheet.colours import BOLD, GREEN, sgr
from nodevet.sheet.text import count, wrap
from nodevet.vet.findings.facts import above, judged_by
from nodevet.vet.findings.fold import lines, summary, totals
from nodevet.vet.findings.passed import passed
from nodevet.vet.findings.shadow import shadowed
from nodevet.vet.findings.suspected import suspected

if TYPE_CHECKING:
    from nodevet.fixing.result import Result
    from nodevet.resource import Contents

ENDING = ".txt"


def render_checks(
    run: Run,
    *,
    colour: bool = False,
    width: int | None = None,
    everything: bool = False,
    shadow: bool = False,
    advice: bool = False,
    quiet: bool = False,
) -> str:
    """One line per difference, then the totals; above them what the hosts are judged by, and of one
    host what it is.

    `everything`: what passed too, with its value. `shadow`: what is tried out. `advice`: in full.
    `quiet`: only what counts for the exit code.
    """
    rows = lines(run)
    hidden = 0
    if quiet:
        shown = tuple(row for row in rows if row.fails)
        rows, hidden = shown, len(rows) - len(shown)
    rows += passed(run) if everything and not quiet else ()
    rows += shadowed(run, everything=everything) if shadow and not quiet else ()
    told = "none" if quiet else "full" if advice else "short"
    text = grid(rows, colour=colour, width=width, advice=told)
    total = summary(run)
    total += f" · {count(hidden, 'row')} not shown" if hidden else ""
    totalled = wrap(total, width) if width else [total]
    if colour:
        totalled = [sgr(line, GREEN if totals(run).all_ok else BOLD) for line in totalled]
    head = () if quiet else above(run, width) or judged_by(run, width)
    return (
        "\n".join(
            [
                *suspected(run, width, colour=colour),
                *head,
                *text,
                *([""] if text else []),
                *totalled,
            ]
        )
        + "\n"
    )


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
