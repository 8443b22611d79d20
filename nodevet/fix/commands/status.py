"""`nodevet status`: the state of a run of fixes."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodevet.base.project import Project
from nodevet.cli import completing, options, sheets
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command

if TYPE_CHECKING:
    from nodevet.fix.standing import RunStatus

EVERY = 2.0  # seconds between two looks of --watch


@click.command(
    "status",
    cls=Command,
    group="Fix",
    order=4,
    examples=(
        ("The newest run", "nodevet status"),
        ("Follow a run in another terminal", "nodevet status runs/7f3a91c2-1 --watch"),
        ("For a program", "nodevet status --format json"),
    ),
)
@click.argument(
    "folder",
    metavar="[RUN]",
    required=False,
    shell_complete=completing.runs,
    type=options.RUN_FOLDER,
)
@click.option(
    "--watch",
    is_flag=True,
    help="Show the state again after each change, until the run ends; in JSON one line each time.",
)
@sheets.formats()
@display_options()
@options.project
def command(
    folder: Path | None,
    watch: bool,
    form: tuple[str, Path | None],
    display: Display,
    project: Project,
) -> None:
    """Show the state of a run of fixes, and what to do next.

    RUN is the folder of an apply or rollback that goes on, ended or was killed; by default the
    newest in the project's runs/. `status` changes and locks nothing, so you can run it at any
    time.

    \b
    Exit codes:
      0  ended, and every host is as planned
      1  ended; something failed, was refused or not attempted
      2  usage error, or RUN cannot be read or was changed
      3  interrupted, or an outcome is unknown: see the line `next`
      4  goes on
    """
    from nodevet.cli.speech import say
    from nodevet.fix.standing import GOES_ON
    from nodevet.fix.use.status import newest_run, status, unfinished

    if folder is None:
        folder, others = newest_run(project.folder / "runs")
        for other in unfinished(others):
            say(f"{other}: has no end either: nodevet status {shlex.quote(str(other))}")
    run_status = status(folder)
    _show(run_status, form, display, watch=watch)
    while watch and run_status.exit_code == GOES_ON:
        time.sleep(EVERY)
        run_status, before = status(folder), run_status
        if run_status != before:
            if form == ("table", None):
                click.echo()
            _show(run_status, form, display, watch=True)
    click.get_current_context().exit(run_status.exit_code)


def _show(
    run_status: "RunStatus", form: tuple[str, Path | None], display: Display, *, watch: bool
) -> None:
    """Raises BrokenPipeError if its reader is gone."""
    from nodevet.fix.standing import answer
    from nodevet.fix.status_sheet import status_sheet
    from nodevet.sheet.json import encode

    if watch and form[0] == "json":
        sheets.write(encode(answer(run_status)) + "\n", form)
        return
    sheets.show_bare(answer(run_status), lambda: status_sheet(run_status), form, display)
