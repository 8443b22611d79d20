"""`nodevet diff`: two recorded runs compared."""

from pathlib import Path

import click

from nodevet.cli import sheets
from nodevet.cli.display import Display
from nodevet.cli.help import Command
from nodevet.past import completing as recorded
from nodevet.past import terminal as recalled


@click.command(
    "diff",
    cls=Command,
    group="History",
    order=2,
    short=True,
    examples=(
        ("What changed last night", "nodevet diff"),
        ("What changed since a day", "nodevet diff 2026-11-16 last"),
        ("The same, for a ticket", "nodevet diff 2026-11-16 last --format markdown"),
    ),
)
@click.argument("before", required=False, metavar="[RUN]", shell_complete=recorded.runs)
@click.argument("after", required=False, metavar="[RUN]", shell_complete=recorded.runs)
@recalled.answer
def command(
    before: str | None,
    after: str | None,
    redact: bool,
    form: tuple[str, Path | None],
    store: str | None,
    display: Display,
) -> None:
    """Compare two recorded runs.

    Without a RUN: the last two complete nights of the last sweep, of about the same hosts; checks
    by hand count only if there is no sweep. With one RUN: that run and the last night of its series
    and hosts. A RUN is an id or its beginning, `last`, `last~1`, or a day. nodevet compares a run
    that you name even if it is incomplete.

    The answer lists what is new, changed, fixed (the check says ok), resolved (it was unknown) or
    no longer judged; hosts that can no longer be judged, can be judged again, or are other
    machines; GPUs, NICs and drives that moved, are new, or are gone; and changes of driver, kernel,
    firmware and packages.

    \b
    Exit codes:
      0  compared, whatever differs
      2  usage or configuration error, no such run, or nothing to compare with
    """
    from nodevet.past.sheets.diff import diff_sheet
    from nodevet.past.use.recall import find_diff
    from nodevet.vet.use.stores import open_history

    with open_history(store) as history:
        difference = find_diff(history, before, after)
        difference = recalled.redact_document(difference, history) if redact else difference
        sheet = diff_sheet(
            difference.diff, difference.refs, recalled.clock(), newer=difference.newer
        )
        sheets.show(difference.diff, sheet, form, display)
