"""`nodevet diff`: two recorded runs compared."""

from pathlib import Path

import click

from nodevet.cli.common import completing, recalled
from nodevet.cli.common.command import Command
from nodevet.cli.common.display import Display, display_options


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
@click.argument("before", required=False, metavar="[RUN]", shell_complete=completing.recorded_runs)
@click.argument("after", required=False, metavar="[RUN]", shell_complete=completing.recorded_runs)
@recalled.redact
@recalled.formats()
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

    Without any RUN: the last one, and the one of the same sweep before it; with one: that and the
    last. A RUN is an id or its beginning, `last`, `last~1`, or a day.

    It tells what is new, changed, fixed (the check says ok) or no longer judged; which hosts can no
    longer be judged, or can again, or are other machines; which GPUs, NICs and drives moved, are
    new, or gone; and what hosts run that is not as it was: driver, kernel, firmware, packages.

    \b
    Exit codes:
      0  compared, whatever differs
      2  usage or configuration error, no such run, or nothing to compare with
    """
    from nodevet.report.parts.history_runs import diff_sheet
    from nodevet.run.recall import diff_found, open_history

    with open_history(store) as history:
        found = diff_found(history, before, after or "last")
        found = recalled.redacted(found, history) if redact else found
        recalled.show(
            found.diff, diff_sheet(found.diff, found.refs, recalled.clock()), form, display
        )
