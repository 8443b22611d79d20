"""`nodevet diff`: two recorded runs compared."""

from pathlib import Path

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.past import completing as recorded
from nodevet.past import terminal as recalled


@click.command(
    "diff",
    cls=Command,
    group="History",
    order=2,
    examples=(
        ("What changed last night", "nodevet diff"),
        ("What changed since a day", "nodevet diff 2026-11-16 last"),
        ("The same, for a ticket", "nodevet diff 2026-11-16 last --format markdown"),
    ),
)
@click.argument("before", required=False, metavar="[RUN]", shell_complete=recorded.runs)
@click.argument("after", required=False, metavar="[RUN]", shell_complete=recorded.runs)
@recalled.redact
@sheets.formats()
@recalled.store
@display_options()
def command(
    before: str | None,
    after: str | None,
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """Say what differs between two recorded runs.

    Without any RUN: the last two nights of the sweep that ran last, each with all its hosts visited
    and about the same hosts; checks by hand count only if there is no sweep. With one RUN: that and
    the last night of its series and hosts. A RUN is an id or its beginning, `last`, `last~1`, or a
    day; one that is named is compared even if it is incomplete.

    It tells what is new, changed, fixed (the check says ok), resolved (it was unknown) or no longer
    judged; which hosts can no
    longer be judged, or can again, or are other machines; which GPUs, NICs and drives moved, are
    new, or gone; and what hosts run that is not as it was: driver, kernel, firmware, packages.

    \b
    Exit codes:
      0  compared, whatever differs
      2  usage or configuration error, no such run, or nothing to compare with
    """
    from nodevet.past.sheets.runs import diff_sheet
    from nodevet.past.use.recall import diff_found
    from nodevet.vet.use.stores import open_history

    with open_history(store) as history:
        found = diff_found(history, before, after)
        found = recalled.redacted(found, history) if redact else found
        sheet = diff_sheet(found.diff, found.refs, recalled.clock(), newer=found.newer)
        sheets.show(found.diff, sheet, form, display)
