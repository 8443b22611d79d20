"""`nodevet rollback`: revert what a run did."""

from pathlib import Path
from typing import Any

import click

from nodevet.base.project import Project
from nodevet.cli import completing, options
from nodevet.cli.display import Display, display_options
from nodevet.cli.help import Command
from nodevet.fix.terminal import fix_run, rollout
from nodevet.vet import options as vetting


@click.command(
    "rollback",
    cls=Command,
    group="Fix",
    order=4,
    examples=(
        ("Undo the whole run", "nodevet rollback runs/7f3a91c2-1"),
        ("Undo it on one host", "nodevet rollback runs/7f3a91c2-1 --host gpu004"),
    ),
)
@click.argument(
    "folder",
    metavar="RUN",
    shell_complete=completing.runs,
    type=options.RUN_FOLDER,
)
@click.option(
    "--host",
    "names",
    multiple=True,
    metavar="NODESET",
    shell_complete=completing.hosts,
    help="Only these hosts.",
)
@fix_run.inventories
@rollout.settle
@rollout.drain_hook
@rollout.drain_timeout
@fix_run.shown
@options.store
@vetting.reach
@display_options()
@options.project
def command(
    folder: Path,
    names: tuple[str, ...],
    inventories: tuple[str, ...],
    form: str,
    store: str | None,
    project: Project,
    display: Display,
    **given: Any,
) -> None:
    """Revert the steps of RUN, the last one first.

    nodevet reverts every step that was done, or whose outcome is unknown: it restores each setting
    and re-reads it. If a setting has neither its old value nor that of the step, something else
    changed it since: nodevet reports it and does not touch it. You can run a rollback again.

    If you did not apply the run, its rollback needs approvals as its plan did: nodevet approve
    --rollback.

    \b
    Exit codes:
      0  everything is as it was before the run, or will be after the reboot or
         restart that the report names (pending); run the rollback again to
         confirm it
      1  a node was refused, or a setting was changed since and not touched
      2  usage or configuration error
      3  a rollback failed or an outcome is unknown: look at the node
    """
    from nodevet.fix.terminal.watch import FixWatcher
    from nodevet.fix.use.fix_run import open_run
    from nodevet.fix.use.rollback import rollback
    from nodevet.vet.use.context import require_accepted

    require_accepted(project)
    care, reach = rollout.split(given)
    run = open_run(folder)
    reached = fix_run.reached_before(run, inventories, reach)
    with fix_run.record_fix_run(run, reached, store) as recording:
        with FixWatcher(display) as watcher:
            result = rollback(
                run,
                reached,
                project,
                given=care,
                only=names,
                listener=recording(watcher),
            )
        fix_run.finish(run, result, form, display, inventories)
